// SPDX-License-Identifier: Apache-2.0
// What one forward pass takes and gives.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/ops/route.h"
#include "tensor/view.h"

namespace switchyard::model {

/// A token of a sequence; each stands once in a list.
struct SeenToken {
  int32_t token = 0;
  uint32_t in_output = 0;  ///< how often it was produced
};

/// How the next token of a logit row is chosen, for a model that chooses on its device; the stages are those of
/// engine/sampler.h.
struct SampleSpec {
  float temperature = 0, top_p = 1, min_p = 0;
  int top_k = 0;  ///< 0: all
  float repetition = 1, presence = 0, frequency = 0;
  uint64_t seed = 0, position = 0;    ///< position: tokens of the sequence so far
  std::span<const SeenToken> seen;    ///< of the sequence, where a penalty asks for them
  std::span<const int32_t> masked{};  ///< tokens that must not be chosen
};

struct StepInput {
  TensorView token;          ///< [T] i32
  TensorView position;       ///< [T] i32
  TensorView seq_offset;     ///< [B + 1] i32 into tokens
  TensorView context_len;    ///< [B] i32: positions already cached
  TensorView block_table;    ///< [B, max_blocks] i32
  TensorView logit_row;      ///< [N] i32: rows whose logits are wanted
  bool decode_only = false;  ///< every sequence adds one token
  /// Not null: the next step will very likely be of the same sequences, each with the token that this step picks, as long as this
  /// does not become true: a device may go ahead.
  const std::atomic<bool>* goes_on_unless = nullptr;
  std::span<const SampleSpec>
      sample{};  ///< [N]; empty: logits are wanted. Only where Model::can_pick()
};

/// What a pick is when it is no token.
inline constexpr int32_t kPickNonFinite = -1;  ///< the logits held NaN or infinity
inline constexpr int32_t kPickUndecided = -2;  ///< the host must choose: Model::read_logits()

struct StepOutput {
  TensorView logits;  ///< [N, V] f32, valid until the next forward; no data when there are picks
  TensorView pick{};  ///< [N] i32, where the model has chosen; else no data
};

/// Steps that a device began before they were asked for, since the model was loaded.
struct AheadCounts {
  uint64_t used = 0;    ///< asked for afterwards
  uint64_t wasted = 0;  ///< not: another one was
  uint64_t failed = 0;  ///< could not be queued
};

/// Picks of single tokens that a device guessed, to read their experts early, since the model was loaded.
struct GuessCounts {
  uint64_t right = 0;
  uint64_t wrong = 0;  ///< what was read of their experts, if anything, was for nothing
};

/// Sees every layer's routing as it happens (for statistics). Called on the driving thread, between
/// kernels.
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  /// moe_layer counts MoE layers alone. The routing's arrays are valid during the call.
  virtual void on_routing(int moe_layer, const Routing& routing) = 0;
  /// False: counts are enough for the coming step, and a routing's `expert` and `weight` may have a shape and no data.
  virtual bool wants_picks() const { return true; }
};

}  // namespace switchyard::model
