// SPDX-License-Identifier: Apache-2.0
// Sequence: what the scheduler knows of one request: how many tokens it has, how many of them are
// in the cache, and the blocks that hold them.
#pragma once
#include <cstdint>
#include <vector>

namespace switchyard::schedule {

using SequenceId = uint64_t;

struct Sequence {
  enum class State : uint8_t { waiting, running };

  SequenceId id = 0;
  State state = State::waiting;
  int known_tokens = 0;     ///< the prompt and what was generated so far
  int computed_tokens = 0;  ///< positions whose keys and values are in the cache
  int max_tokens = 0;       ///< known_tokens never exceeds this
  std::vector<int32_t>
      blocks;               ///< in order of position; room for max_tokens is reserved on arrival
  double arrived_s = 0;     ///< time of add()
  double first_run_s = -1;  ///< time of the first step; negative before

  /// Tokens whose keys and values are still to be computed. One, for a sequence that decodes.
  int pending_tokens() const noexcept { return known_tokens - computed_tokens; }
};

}  // namespace switchyard::schedule
