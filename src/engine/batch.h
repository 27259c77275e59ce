// SPDX-License-Identifier: Apache-2.0
// Batch: turns a decision into the flat arrays of a StepInput. All room is taken once, so a step
// allocates nothing.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/live.h"
#include "model/step.h"
#include "schedule/scheduler.h"

namespace switchyard::engine {

class Batch {
 public:
  /// max_blocks: blocks that the longest sequence can take.
  Batch(const schedule::Limits& limits, int max_blocks);

  /// live[i] is the request of decision.runs[i]. The views are valid until the next call.
  model::StepInput build(const schedule::Decision& decision, std::span<const Live* const> live);

  /// [B + 1] of the last build.
  std::span<const int32_t> seq_offset() const noexcept { return seq_offset_; }

 private:
  void append(const schedule::Decision::Run& run, const Live& live);

  int max_blocks_;
  std::vector<int32_t> token_, position_;  // [T]
  std::vector<int32_t> seq_offset_;        // [B + 1]
  std::vector<int32_t> context_len_;       // [B]
  std::vector<int32_t>
      block_table_;                 // [B, max_blocks]; entries beyond a sequence's own are not read
  std::vector<int32_t> logit_row_;  // [N]
};

}  // namespace switchyard::engine
