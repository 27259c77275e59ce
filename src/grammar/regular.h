// SPDX-License-Identifier: Apache-2.0
// Regular languages over bytes: a nondeterministic automaton to build with, and its deterministic form. Strings,
// numbers, patterns and literals of a schema are made so; what nests is the network's (network.h).
//
//   cost  determinize: O(sets of states x their edges), which may be exponential in the pattern; a Budget bounds it
// Source: Rabin and Scott 1959 (subset construction); Thompson 1968 (fragments).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::grammar {

/// Bytes low to high lead to `target`.
struct ByteEdge {
  uint8_t low = 0, high = 0;
  int32_t target = 0;
};

/// What a compilation may still spend; what it does not have is an error that names the limit.
class Budget {
 public:
  static constexpr int64_t kMaxStates = 65'536;   ///< of one automaton, and of a whole grammar
  static constexpr int64_t kMaxWork = 8'000'000;  ///< edges looked at: well under a second

  /// False once more than kMaxWork is spent.
  bool spend(int64_t work) noexcept { return (work_ += work) <= kMaxWork; }
  static Error too_many_states();
  static Error too_much_work();

 private:
  int64_t work_ = 0;
};

/// A part of an Nfa: enter at `start`, leave at `end`.
struct Fragment {
  int32_t start = 0, end = 0;
};

class Nfa {
 public:
  struct State {
    std::vector<ByteEdge> edges;
    std::vector<int32_t> free;  ///< reached without a byte
  };

  int32_t add_state();
  void add_edge(int32_t from, int low, int high, int32_t to);
  void add_free(int32_t from, int32_t to);
  /// The bytes of `text` from `from` to `to`; of at least one byte.
  void add_literal(int32_t from, std::string_view text, int32_t to);

  const std::vector<State>& states() const noexcept { return states_; }
  /// More than Budget::kMaxStates: whoever builds in loops asks, and stops.
  bool too_large() const noexcept { return std::ssize(states_) > Budget::kMaxStates; }

 private:
  std::vector<State> states_;
};

/// Starts in state 0; edges of a state do not overlap.
struct Dfa {
  struct State {
    std::vector<ByteEdge> edges;
    bool accepts = false;
  };
  std::vector<State> states;

  /// The state behind one byte, or -1.
  int32_t next(int32_t state, uint8_t byte) const noexcept;
};

Result<Dfa> determinize(const Nfa& nfa, Fragment whole, Budget& budget);

/// What `a` accepts and `b` does not.
Result<Dfa> subtract(const Dfa& a, const Dfa& b, Budget& budget);

}  // namespace switchyard::grammar
