// SPDX-License-Identifier: Apache-2.0
// All layers of a decode step of one token in a single launch (step_persistent_sm90a.cu). Device code includes this header.
#pragma once
#include <cstdint>

#include "kernels/cuda/step.h"
#include "kernels/ops/moe_ffn.h"

namespace switchyard::cuda {

/// What differs between the layers; an array of them lies on the device.
struct PersistentLayer {
  const float* attention_norm = nullptr;  ///< [D]
  const float* ffn_norm = nullptr;        ///< [D]
  const float* q_norm = nullptr;          ///< as PrepareHeads
  const float* k_norm = nullptr;
  const void* qkv = nullptr;        ///< [(H + 2 G) Z, D] bf16
  const float* qkv_bias = nullptr;  ///< [(H + 2 G) Z], or null
  const void* output = nullptr;     ///< [D, H Z] bf16
  const float* output_bias = nullptr;
  const float* gate = nullptr;  ///< [D, E]
  const void* foresight =
      nullptr;  ///< [E, D] bf16: the gate for rows of the norm before attention, see persistent_guesses()
  const void* w13 = nullptr;  ///< as MoeFfn::Args
  const void* w2 = nullptr;
  void* k_cache = nullptr;  ///< [blocks, G, P, Z] bf16
  void* v_cache = nullptr;
  int32_t* expert = nullptr;  ///< [K] out
  float* weight = nullptr;    ///< [K] out
};

/// What they share.
struct PersistentStep {
  int layers = 0;
  int64_t width = 0;  ///< D
  int heads = 0, kv_heads = 0, head_dim = 0, block_tokens = 16;
  QkNormKind qk_norm = QkNormKind::none;
  float clip = 0, attention_scale = 0, eps = 1e-6f, residual_scale = 1;
  MoeFfn::Problem experts;
  L2Sides sides;                           ///< by which the experts' weights are placed
  const void* weights = nullptr;           ///< the memory that all of these are in
  int64_t weight_bytes = 0;                ///< less than 1 TiB
  const PersistentLayer* layer = nullptr;  ///< [layers]
  const float* cos = nullptr;              ///< [*, Z/2]
  const float* sin = nullptr;
  const int32_t* rope_row = nullptr;     ///< [1]
  const int32_t* slot = nullptr;         ///< [1]
  const int32_t* context_len = nullptr;  ///< [1]
  const int32_t* block_table = nullptr;  ///< [max_blocks]
  float* x = nullptr;                    ///< [D]: the residual stream, in and out
  void* workspace = nullptr;             ///< zero before the first step, and left fit for the next
  uint32_t* guesses = nullptr;  ///< [2] picks that were guessed, and that were not: added to
};

/// Null when such a step can be run on the current device, else why not, in plain words. Pointers do not matter.
const char* persistent_refusal(const PersistentStep& step) noexcept;
/// Whether it guesses picks, and so wants PersistentLayer::foresight and `guesses`.
bool persistent_guesses(const PersistentStep& step) noexcept;
int64_t persistent_workspace(const PersistentStep& step) noexcept;
void run_persistent(const PersistentStep& step, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
