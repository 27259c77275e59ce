// SPDX-License-Identifier: Apache-2.0
// Masks: which tokens may come next at a position, one bit each.
//
// What a part of the grammar accepts by itself does not depend on who called it. So for each state the whole tree of tokens is
// walked once, with an empty stack: that gives the tokens that stay inside the part, and the nodes at which the part ended.
// At a position, only what follows those few nodes is walked anew. States of one counted repetition whose ends are further away
// than the longest token are one state here.
//
//   V tokens: V / 8 bytes a mask; first mask of a state O(nodes of the tree), of a position with known states O(nodes behind
//   ends), of a known position O(1)
// Source: Dong et al. 2024, arXiv 2411.15100 (XGrammar: tokens that do not depend on context).
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/positions.h"
#include "grammar/token_trie.h"

namespace switchyard::grammar {

class Masks {
 public:
  /// Both must outlive it.
  Masks(Positions& positions, const TokenTrie& tokens);

  /// [V / 64, rounded up] bit t of word t / 64; valid until the Masks are gone.
  std::span<const uint64_t> of(int32_t position);
  size_t bytes() const noexcept { return bytes_; }

 private:
  using Bits = std::vector<uint64_t>;
  struct Inside {
    Bits bits;
    std::vector<int32_t> ends;  // nodes at which the part has ended
    int peak = 0;
  };
  /// What a walk has met; the lists are null where nobody asks.
  struct Found {
    Bits* bits = nullptr;
    std::vector<int32_t>* ends = nullptr;
    int peak = 0;
  };
  using StateKey = std::tuple<int32_t, int32_t, int32_t>;

  StateKey key_of(int32_t state) const;
  const Inside& inside(int32_t state);
  void add_thread(Positions::Thread thread, Bits& bits);
  void walk(int32_t position, int32_t node, Found& found);
  void take(int32_t position, int32_t node, Found& found);
  bool spent() const { return positions_.work() > work_limit_; }

  Positions& positions_;
  const TokenTrie& tokens_;
  std::map<StateKey, Inside> inside_;
  std::unordered_map<int32_t, Bits> masks_;
  std::vector<std::pair<int32_t, int32_t>> path_;  // skip of an open node, its position
  int64_t work_limit_ = 0;
  size_t bytes_ = 0;
};

}  // namespace switchyard::grammar
