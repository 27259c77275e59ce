// SPDX-License-Identifier: Apache-2.0
// Sequence: what the scheduler knows of one request: how many tokens it has, how many of them are
// in the cache, the blocks that hold them, and its place in the order of all requests.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "schedule/block_key.h"

namespace switchyard::schedule {

using SequenceId = uint64_t;
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A request as it comes.
struct Arrival {
  SequenceId id = 0;      ///< rises from arrival to arrival
  int prompt_tokens = 0;  ///< at least 1
  int max_tokens = 0;     ///< of prompt and output together
  double now_s = 0;
  int priority = 0;                  ///< lower first
  double queue_deadline_s = kNever;  ///< its first step must come before
  double deadline_s = kNever;        ///< its end must come before
  /// Of all the prompt's full blocks, in order; or of none, and then it shares nothing.
  std::span<const BlockKey> keys = {};
};

struct Sequence {
  enum class State : uint8_t { waiting, running };

  SequenceId id = 0;
  State state = State::waiting;
  int priority = 0;
  /// The place in the order, smaller first: the time of arrival, moved by ageing_s for every level of priority. So it
  /// is as if the priority rose by one for every ageing_s of waiting, yet two requests never change places.
  double place_s = 0;
  int prompt_tokens = 0;
  int known_tokens = 0;     ///< the prompt and what was generated so far
  int computed_tokens = 0;  ///< positions whose keys and values are in the cache
  int max_tokens = 0;       ///< known_tokens never exceeds this
  std::vector<int32_t>
      blocks;  ///< in order of position; room for max_tokens is reserved on admission
  std::vector<BlockKey> keys;  ///< of the full blocks of known tokens; room likewise
  int named_blocks = 0;   ///< blocks [0, named_blocks) are shared, or have been offered for sharing
  int cached_tokens = 0;  ///< prompt tokens that were found in the cache at the first step
  int lost_tokens = 0;    ///< positions that the last preemption gave up
  double queue_deadline_s = kNever, deadline_s = kNever;
  double first_run_s = -1;  ///< time of the first step; negative before

  /// Tokens whose keys and values are still to be computed. One, for a sequence that decodes.
  int pending_tokens() const noexcept { return known_tokens - computed_tokens; }
  bool decodes() const noexcept { return known_tokens > prompt_tokens && pending_tokens() == 1; }
};

/// True when a comes before b.
inline bool comes_before(const Sequence& a, const Sequence& b) noexcept {
  return a.place_s != b.place_s ? a.place_s < b.place_s : a.id < b.id;
}

}  // namespace switchyard::schedule
