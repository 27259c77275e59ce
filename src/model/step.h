// SPDX-License-Identifier: Apache-2.0
// What one forward pass takes and gives.
#pragma once
#include <cstdint>

#include "kernels/ops/route.h"
#include "tensor/view.h"

namespace switchyard::model {

struct StepInput {
  TensorView token;          ///< [T] i32
  TensorView position;       ///< [T] i32
  TensorView seq_offset;     ///< [B + 1] i32 into tokens
  TensorView context_len;    ///< [B] i32: positions already cached
  TensorView block_table;    ///< [B, max_blocks] i32
  TensorView logit_row;      ///< [N] i32: rows whose logits are wanted
  bool decode_only = false;  ///< every sequence adds one token
};

struct StepOutput {
  TensorView logits;  ///< [N, V] f32, valid until the next forward
};

/// Sees every layer's routing as it happens (for statistics). Called on the driving thread, between
/// kernels.
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  /// moe_layer counts MoE layers alone. The routing's arrays are valid during the call.
  virtual void on_routing(int moe_layer, const Routing& routing) = 0;
};

}  // namespace switchyard::model
