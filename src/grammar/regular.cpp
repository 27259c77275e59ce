// SPDX-License-Identifier: Apache-2.0
#include "grammar/regular.h"

#include <algorithm>
#include <map>
#include <utility>

namespace switchyard::grammar {
namespace {

using Set = std::vector<int32_t>;  // sorted states of an Nfa

/// Finds what is reached without a byte. Linear: it marks states with the number of the search that met them.
class Closer {
 public:
  explicit Closer(const Nfa& nfa) : nfa_(nfa), met_(nfa.states().size(), 0) {}

  /// `set` without repetitions and with what it reaches, sorted.
  Set close(const Set& set) {
    ++search_;
    Set closed;
    for (const int32_t state : set) meet(state, closed);
    for (size_t i = 0; i < closed.size(); ++i)
      for (const int32_t to : nfa_.states()[static_cast<size_t>(closed[i])].free) meet(to, closed);
    std::sort(closed.begin(), closed.end());
    return closed;
  }

 private:
  void meet(int32_t state, Set& closed) {
    int32_t& met = met_[static_cast<size_t>(state)];
    if (met == search_) return;
    met = search_;
    closed.push_back(state);
  }

  const Nfa& nfa_;
  std::vector<int32_t> met_;  // [states] the last search that met it
  int32_t search_ = 0;
};

/// Numbers the keys that it is asked for in the order of their first mention.
template <class Key>
class Numbering {
 public:
  int32_t number(Key key) {
    const auto [at, is_new] =
        numbers_.emplace(std::move(key), static_cast<int32_t>(numbers_.size()));
    if (is_new) keys_.push_back(&at->first);
    return at->second;
  }
  const Key& key(int32_t number) const { return *keys_[static_cast<size_t>(number)]; }
  int64_t size() const { return std::ssize(keys_); }

 private:
  std::map<Key, int32_t> numbers_;
  std::vector<const Key*> keys_;  // into numbers_, whose keys stay where they are
};

/// The bytes at which any of the edges begins, or has just ended.
std::vector<int> boundaries(const std::vector<ByteEdge>& edges) {
  std::vector<int> cuts;
  for (const ByteEdge& edge : edges) {
    cuts.push_back(edge.low);
    cuts.push_back(edge.high + 1);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void append_edge(std::vector<ByteEdge>& edges, int low, int high, int32_t target) {
  if (!edges.empty() && edges.back().target == target && edges.back().high + 1 == low) {
    edges.back().high = static_cast<uint8_t>(high);
  } else {
    edges.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(high), target});
  }
}

std::vector<ByteEdge> edges_of(const Nfa& nfa, const Set& set) {
  std::vector<ByteEdge> edges;
  for (const int32_t state : set) {
    const auto& more = nfa.states()[static_cast<size_t>(state)].edges;
    edges.insert(edges.end(), more.begin(), more.end());
  }
  return edges;
}

Set targets_of(const std::vector<ByteEdge>& edges, int byte) {
  Set targets;
  for (const ByteEdge& edge : edges)
    if (edge.low <= byte && byte <= edge.high) targets.push_back(edge.target);
  return targets;
}

}  // namespace

Error Budget::too_many_states() {
  return fail(Code::bad_request,
              "the grammar needs more than {} states: use smaller counts and lists", kMaxStates);
}

Error Budget::too_much_work() {
  return fail(Code::bad_request,
              "the grammar takes more than {} steps to compile: use simpler patterns, fewer "
              "optional properties or smaller counts",
              kMaxWork);
}

int32_t Nfa::add_state() {
  states_.emplace_back();
  return static_cast<int32_t>(states_.size() - 1);
}

void Nfa::add_edge(int32_t from, int low, int high, int32_t to) {
  states_[static_cast<size_t>(from)].edges.push_back(
      {static_cast<uint8_t>(low), static_cast<uint8_t>(high), to});
}

void Nfa::add_free(int32_t from, int32_t to) {
  states_[static_cast<size_t>(from)].free.push_back(to);
}

void Nfa::add_literal(int32_t from, std::string_view text, int32_t to) {
  for (size_t i = 0; i < text.size(); ++i) {
    const int32_t next = i + 1 == text.size() ? to : add_state();
    const auto byte = static_cast<uint8_t>(text[i]);
    add_edge(from, byte, byte, next);
    from = next;
  }
}

int32_t Dfa::next(int32_t state, uint8_t byte) const noexcept {
  for (const ByteEdge& edge : states[static_cast<size_t>(state)].edges)
    if (edge.low <= byte && byte <= edge.high) return edge.target;
  return -1;
}

Result<Dfa> determinize(const Nfa& nfa, Fragment whole, Budget& budget) {
  if (nfa.too_large()) return Budget::too_many_states();
  Dfa dfa;
  Numbering<Set> sets;
  Closer closer(nfa);
  sets.number(closer.close({whole.start}));
  for (int32_t i = 0; i < sets.size(); ++i) {
    const Set& set = sets.key(i);
    Dfa::State state;
    state.accepts = std::binary_search(set.begin(), set.end(), whole.end);
    const std::vector<ByteEdge> edges = edges_of(nfa, set);
    const std::vector<int> cuts = boundaries(edges);
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      Set targets = closer.close(targets_of(edges, cuts[c]));
      if (!budget.spend(std::ssize(edges) + std::ssize(targets) * 4))
        return Budget::too_much_work();
      if (!targets.empty())
        append_edge(state.edges, cuts[c], cuts[c + 1] - 1, sets.number(std::move(targets)));
    }
    dfa.states.push_back(std::move(state));
    if (sets.size() > Budget::kMaxStates) return Budget::too_many_states();
  }
  return dfa;
}

Result<Dfa> subtract(const Dfa& a, const Dfa& b, Budget& budget) {
  Dfa dfa;
  Numbering<std::pair<int32_t, int32_t>> pairs;  // a state of a, and one of b or -1
  pairs.number({0, 0});
  for (int32_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs.key(i);
    Dfa::State state;
    const Dfa::State& of_a = a.states[static_cast<size_t>(x)];
    state.accepts = of_a.accepts && (y < 0 || !b.states[static_cast<size_t>(y)].accepts);
    std::vector<ByteEdge> edges = of_a.edges;
    if (y >= 0) {
      const auto& more = b.states[static_cast<size_t>(y)].edges;
      edges.insert(edges.end(), more.begin(), more.end());
    }
    const std::vector<int> cuts = boundaries(edges);
    if (!budget.spend(std::ssize(cuts) * 8)) return Budget::too_much_work();
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const int32_t to = a.next(x, static_cast<uint8_t>(cuts[c]));
      if (to < 0) continue;
      const int32_t beside = y < 0 ? -1 : b.next(y, static_cast<uint8_t>(cuts[c]));
      append_edge(state.edges, cuts[c], cuts[c + 1] - 1, pairs.number({to, beside}));
    }
    dfa.states.push_back(std::move(state));
    if (pairs.size() > Budget::kMaxStates) return Budget::too_many_states();
  }
  return dfa;
}

}  // namespace switchyard::grammar
