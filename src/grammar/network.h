// SPDX-License-Identifier: Apache-2.0
// Network: a grammar as a recursive transition network. States read bytes, or call another part and go on at `back` when
// that part has ended; so a stack of back states is all that nesting needs.
//
//   height(s)  how many calls deep the shortest way from s to the end of its part goes; what has none is cut out. A walk
//              that keeps depth + height within kMaxDepth can therefore always end.
//   cost       finish: O(edges)
// Source: Woods 1970 (recursive transition networks); Knuth 1977 (shortest derivations).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "grammar/regular.h"

namespace switchyard::grammar {

/// Calls that may be open at once. Every array or object inside another is one, so that what is written nests less deep
/// than kMaxJsonDepth.
inline constexpr int kMaxDepth = 60;

struct CallEdge {
  int32_t start = 0, back = 0;
  bool is_last = false;  ///< `back` only ends: then nothing needs to be remembered
};

struct NetworkState {
  std::vector<ByteEdge> edges;
  std::vector<CallEdge> calls;
  bool ends = false;  ///< the part may end here
  int16_t height = 0;
  /// States of one counted repetition differ by what is left of it alone. -1: no such.
  int32_t chain = -1;
  int32_t to_least = 0, to_most = 0;  ///< repetitions before it may, and before it must, end
};

class Network {
 public:
  static constexpr int64_t kMaxEdges = 1'000'000;

  int32_t add_state();
  void add_edge(int32_t from, int low, int high, int32_t to);
  void add_call(int32_t from, int32_t start, int32_t back);
  /// Copies `dfa` so that it starts at `start`; says which states are its ends.
  std::vector<int32_t> insert(const Dfa& dfa, int32_t start);

  NetworkState& state(int32_t index) { return states_[static_cast<size_t>(index)]; }
  const NetworkState& state(int32_t index) const { return states_[static_cast<size_t>(index)]; }
  int32_t size() const noexcept { return static_cast<int32_t>(states_.size()); }

  /// Errors: Code::bad_request when it has grown too large.
  Status check_size() const;
  /// A part that calls itself before it reads anything, or -1.
  int32_t find_left_recursion() const;
  /// Measures heights, cuts out what cannot end, sorts bytes into classes. False: nothing can end from `root`.
  bool finish(int32_t root);

  int32_t root() const noexcept { return root_; }
  int class_of(uint8_t byte) const noexcept { return class_of_[byte]; }
  int num_classes() const noexcept { return num_classes_; }

 private:
  void measure_heights();
  void cut_dead_ends();
  void sort_bytes();

  std::vector<NetworkState> states_;
  int64_t num_edges_ = 0;
  int32_t root_ = 0;
  std::array<uint8_t, 256> class_of_{};  // bytes that no edge tells apart
  int num_classes_ = 1;
};

}  // namespace switchyard::grammar
