// SPDX-License-Identifier: Apache-2.0
// What a step tells the host without a copy: its tokens and how many picks each expert got, written by the step's last launch into
// pinned memory, behind a number that the host waits for (kernels/cuda/step_mail.h).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/step_mail.h"
#include "model/cuda/buffers.h"

namespace switchyard::model::cuda {

class Results {
 public:
  /// layers: of each MoE block.
  static Result<Results> create(const std::vector<switchyard::cuda::LayerPicks>& layers,
                                int64_t logit_rows, CudaStream& device);

  /// Turns that were queued so far; the next step's is turn().
  uint32_t turn() const noexcept { return turn_; }
  /// On the device: turns that have ended.
  const uint32_t* device_turn() const noexcept { return turns_.as<uint32_t>(); }
  /// Queues the last launch of a step, which ends a turn: with `rows` tokens, and with the counts of `picks` entries, those of *live tokens.
  /// A graph that holds the launch is replayed as often as it is queued here: see next_turn().
  /// `guesses`: of PublishStep.
  void queue(const Buffers& buffers, int rows, int64_t picks, const int32_t* live,
             const uint32_t* guesses, CudaStream& device) const;
  void next_turn() noexcept { ++turn_; }
  /// Until that turn has ended.
  Status wait(uint32_t turn, CudaStream& device) const;
  /// The same, but not beyond a time of now_ns().
  void wait_before(int64_t deadline_ns, uint32_t turn) const noexcept;
  /// After an error: forgets all turns. Nothing may be queued.
  void start_over(CudaStream& device);

  // Of a turn that has ended, until kMailSlots more are queued.
  int32_t* pick(uint32_t turn) const noexcept { return slot(turn) + layout_.pick; }
  const int32_t* count(uint32_t turn, int layer) const noexcept {
    return slot(turn) + layout_.count + layer * layout_.room;
  }
  int unusable(uint32_t turn, int layer) const noexcept {
    return slot(turn)[layout_.unusable + layer];
  }
  /// Sums modulo 2^32: picks that were guessed, and that were not.
  std::array<uint32_t, 2> guesses(uint32_t turn) const noexcept {
    const int32_t* at = slot(turn) + switchyard::cuda::ResultLayout::kGuesses;
    return {static_cast<uint32_t>(at[0]), static_cast<uint32_t>(at[1])};
  }

 private:
  int32_t* slot(uint32_t turn) const noexcept {
    return slots_.as<int32_t>() + turn % switchyard::cuda::kMailSlots * layout_.end;
  }

  uint32_t turn_ = 0;
  int num_layers_ = 0;
  switchyard::cuda::ResultLayout layout_;
  PinnedMemory slots_;
  CudaMemory turns_, layers_;
};

}  // namespace switchyard::model::cuda
