// SPDX-License-Identifier: Apache-2.0
// The two ends of a step, without a copy: its first launch takes the step's arrays out of pinned host memory, or makes them out of the
// step before, and its last one writes what the host wants to know into pinned memory and then a number that the host waits for.
//
//   slots   both ways go through kMailSlots slots, used in turn; the device counts its turns itself, so that a graph can be replayed
//           while the one before still runs: nobody writes a slot that is still read
//   ahead   a step that advances needs no slot: it goes on with the tokens that were picked last, each sequence one position on, so it
//           can be queued before the host knows those tokens
// Device code includes this header.
#pragma once
#include <cstdint>

#include "kernels/cuda/step.h"
#include "kernels/cuda/step_sample.h"

namespace switchyard::cuda {

inline constexpr int kMailSlots = 4;

/// Where a step's arrays stand, in a slot as on the device: offsets in words, multiples of 4.
struct StepLayout {
  static constexpr int kLive = 0;             ///< sequences, or tokens, before any padding
  int32_t token = 4, rope_row = 0, slot = 0;  ///< [T] each
  int32_t logit_row = 0, seq_offset = 0, context_len = 0;  ///< [N], [B + 1], [B]
  int32_t sample = 0;                                      ///< [N] SampleRow
  int32_t end = 0;
};

/// The first launch of a step, or the first two: its arrays, and x[t] = scale * table[token[t]].
struct BeginStep {
  const uint32_t* turn = nullptr;  ///< [1] on the device
  const int32_t* slots = nullptr;  ///< [kMailSlots, slot_words], pinned
  int64_t slot_words = 0;
  int32_t* arrays = nullptr;  ///< [layout.end] on the device
  StepLayout layout;          ///< of this step
  bool advances = false;  ///< the arrays are those of the step before, one position on; T = B = N
  const int32_t* pick = nullptr;  ///< [N] tokens of the step before; only where it advances
  const void* table = nullptr;    ///< [V, D] in `dtype`
  DType dtype = DType::bf16;      ///< f32 or bf16
  int64_t tokens = 0, width = 0;  ///< T, D
  float scale = 1;
  float* x = nullptr;  ///< [T, D]
  /// Later launches of the chain look at the arrays before they wait for the launches before them (chain.cuh).
  bool arrays_are_awaited = true;
};
void begin_step(const BeginStep& args, StreamHandle stream) noexcept;

/// Of a MoE layer.
struct LayerPicks {
  int32_t experts = 0, top_k = 0;
};

/// Where a step's results stand in a slot, in words.
struct ResultLayout {
  static constexpr int kTurn = 0;     ///< how many turns have ended: written last
  static constexpr int kGuesses = 1;  ///< [2] of PublishStep
  int64_t pick = 4;                   ///< [N]
  int64_t unusable = 0;               ///< [L] tokens that could not be scored
  int64_t count = 0;                  ///< [L, room] picks of each expert
  int64_t room = 0;                   ///< most E
  int64_t end = 0;

  ResultLayout() = default;
  ResultLayout(int64_t rows, int64_t layers, int64_t most_experts)
      : unusable(pick + rows),
        count(unusable + layers),
        room(most_experts),
        end((count + layers * most_experts + 31) / 32 * 32) {}
};

/// The last launch of a step.
struct PublishStep {
  uint32_t* turn =
      nullptr;  ///< [2] on the device: turns that have ended, blocks that are done; zero at first
  int32_t* slots = nullptr;  ///< [kMailSlots, layout.end], pinned
  ResultLayout layout;
  const int32_t* pick = nullptr;      ///< [rows] tokens
  int rows = 0;                       ///< 0: nothing was picked
  const int32_t* live = nullptr;      ///< [1] tokens that are no padding
  int layers = 0;                     ///< L; 0: no MoE layers
  const LayerPicks* layer = nullptr;  ///< [L] on the device
  const int32_t* expert = nullptr;    ///< [L, stride]: the picks [T, K] of each layer
  const float* weight = nullptr;      ///< [L, stride]
  int64_t stride = 0;
  const uint32_t* guesses =
      nullptr;  ///< [2] picks that were guessed so far, and that were not, or null
};
void publish_step(const PublishStep& args, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
