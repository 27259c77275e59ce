// SPDX-License-Identifier: Apache-2.0
#include "grammar/network.h"

#include <algorithm>
#include <utility>

namespace switchyard::grammar {
namespace {

constexpr int16_t kEndless = INT16_MAX;

/// Heights from small to large: a state is settled at the height of its best edge, once what that edge needs is settled.
class Heights {
 public:
  explicit Heights(std::vector<NetworkState>& states)
      : states_(states), users_(states.size()), waiting_(kMaxDepth + 1) {
    for (size_t i = 0; i < states.size(); ++i) {
      states[i].height = kEndless;
      for (const ByteEdge& edge : states[i].edges) uses(i, edge.target);
      for (const CallEdge& call : states[i].calls) {
        uses(i, call.start);
        if (!call.is_last) uses(i, call.back);
      }
    }
  }

  void measure() {
    for (size_t i = 0; i < states_.size(); ++i)
      if (states_[i].ends) offer(static_cast<int32_t>(i), 0);
    for (size_t height = 0; height < waiting_.size(); ++height) {
      for (size_t k = 0; k < waiting_[height].size(); ++k) {
        const int32_t settled = waiting_[height][k];
        if (at(settled).height != static_cast<int16_t>(height)) continue;
        for (const int32_t user : users_[static_cast<size_t>(settled)])
          if (at(user).height > at(settled).height) offer(user, best(user));
      }
    }
  }

 private:
  NetworkState& at(int32_t state) { return states_[static_cast<size_t>(state)]; }
  void uses(size_t user, int32_t used) {
    users_[static_cast<size_t>(used)].push_back(static_cast<int32_t>(user));
  }

  void offer(int32_t state, int height) {
    if (height > kMaxDepth || height >= at(state).height) return;
    at(state).height = static_cast<int16_t>(height);
    waiting_[static_cast<size_t>(height)].push_back(state);
  }

  int best(int32_t user) {
    int least = kEndless;
    for (const ByteEdge& edge : at(user).edges)
      least = std::min<int>(least, at(edge.target).height);
    for (const CallEdge& call : at(user).calls) {
      const int inside = at(call.start).height;
      least =
          std::min(least, call.is_last ? inside : std::max<int>(inside + 1, at(call.back).height));
    }
    return least;
  }

  std::vector<NetworkState>& states_;
  std::vector<std::vector<int32_t>> users_;    // [states] whose edges need it
  std::vector<std::vector<int32_t>> waiting_;  // by height
};

}  // namespace

int32_t Network::add_state() {
  states_.emplace_back();
  return size() - 1;
}

void Network::add_edge(int32_t from, int low, int high, int32_t to) {
  ++num_edges_;
  state(from).edges.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(high), to});
}

void Network::add_call(int32_t from, int32_t start, int32_t back) {
  ++num_edges_;
  state(from).calls.push_back({start, back});
}

std::vector<int32_t> Network::insert(const Dfa& dfa, int32_t start) {
  std::vector<int32_t> at, ends;
  for (size_t i = 0; i < dfa.states.size(); ++i) at.push_back(i == 0 ? start : add_state());
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    for (const ByteEdge& edge : dfa.states[i].edges)
      add_edge(at[i], edge.low, edge.high, at[static_cast<size_t>(edge.target)]);
    if (dfa.states[i].accepts) ends.push_back(at[i]);
  }
  return ends;
}

Status Network::check_size() const {
  if (size() > Budget::kMaxStates) return Budget::too_many_states();
  if (num_edges_ > kMaxEdges)
    return fail(Code::bad_request,
                "the grammar needs more than {} transitions: use fewer optional properties, or "
                "smaller counts",
                kMaxEdges);
  return {};
}

int32_t Network::find_left_recursion() const {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> mark(states_.size(), kNew);
  std::vector<std::pair<int32_t, size_t>> path;  // state, its next call
  for (int32_t root = 0; root < size(); ++root) {
    if (mark[static_cast<size_t>(root)] != kNew || state(root).calls.empty()) continue;
    path.assign(1, {root, 0});
    mark[static_cast<size_t>(root)] = kOpen;
    while (!path.empty()) {
      auto& [at, next] = path.back();
      if (next == state(at).calls.size()) {
        mark[static_cast<size_t>(at)] = kDone;
        path.pop_back();
        continue;
      }
      const int32_t start = state(at).calls[next++].start;
      if (mark[static_cast<size_t>(start)] == kOpen) return start;
      if (mark[static_cast<size_t>(start)] == kDone) continue;
      mark[static_cast<size_t>(start)] = kOpen;
      path.emplace_back(start, 0);
    }
  }
  return -1;
}

bool Network::finish(int32_t root) {
  root_ = root;
  for (NetworkState& from : states_) {
    for (CallEdge& call : from.calls) {
      const NetworkState& back = state(call.back);
      call.is_last = back.ends && back.edges.empty() && back.calls.empty();
    }
  }
  measure_heights();
  cut_dead_ends();
  sort_bytes();
  return state(root).height <= kMaxDepth;
}

void Network::measure_heights() { Heights(states_).measure(); }

void Network::cut_dead_ends() {
  const auto dead = [&](int32_t index) { return state(index).height > kMaxDepth; };
  for (NetworkState& from : states_) {
    std::erase_if(from.edges, [&](const ByteEdge& edge) { return dead(edge.target); });
    std::erase_if(from.calls,
                  [&](const CallEdge& call) { return dead(call.start) || dead(call.back); });
  }
}

void Network::sort_bytes() {
  std::array<bool, 257> begins{};
  for (const NetworkState& from : states_) {
    for (const ByteEdge& edge : from.edges) {
      begins[edge.low] = true;
      begins[size_t{edge.high} + 1] = true;
    }
  }
  int current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    class_of_[byte] = static_cast<uint8_t>(current);
  }
  num_classes_ = current + 1;
}

}  // namespace switchyard::grammar
