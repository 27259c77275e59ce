// SPDX-License-Identifier: Apache-2.0
// A model's weights in one piece of device memory, in the precision of the run; norms, biases and gates in f32.
// They come from a checkpoint, tensor by tensor through pinned memory, or are made in place.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/l2_memory.h"
#include "model/config.h"
#include "model/weights.h"

namespace switchyard::model::cuda {

/// [n, k], row-major.
struct Matrix {
  std::byte* data = nullptr;
  int64_t n = 0, k = 0;
  float* bias = nullptr;  ///< [n], or null

  int64_t bytes(DType dtype) const noexcept { return n * k * dtype_bytes(dtype); }
};

/// How experts lie: as the checkpoint has them, or as kernels/ops/moe_pack.h.
enum class ExpertLayout : uint8_t { plain, packed };

struct BlockWeights {
  float* attention_norm = nullptr;  ///< [D]
  float* ffn_norm = nullptr;        ///< [D]
  float* q_norm = nullptr;
  float* k_norm = nullptr;
  Matrix qkv, output;
  Matrix gate_up, down;  ///< of the dense feed-forward or the shared experts: [2 F, D], [D, F]
  Matrix gate;           ///< [E, D] f32
  std::byte* gate_high =
      nullptr;  ///< [E, 2 D] bf16, of runs in bf16: see SplitGate in kernels/cuda/step.h
  std::byte* gate_low = nullptr;         ///< [E, D] bf16, or null where it would be zero
  Matrix shared_gate;                    ///< [1, D] f32, or empty
  std::byte* experts_gate_up = nullptr;  ///< [E, 2 F, D] or packed
  std::byte* experts_down = nullptr;     ///< [E, D, F] or packed
  L2Sides sides;                         ///< by which packed experts are placed
};

struct Weights {
  DType dtype = DType::bf16;
  std::vector<ExpertLayout> layout;  ///< of each block
  L2Memory memory;
  Matrix embedding, lm_head;  ///< the same when tied
  float* final_norm = nullptr;
  std::vector<BlockWeights> blocks;
  int64_t expert_bytes = 0;
  int64_t placed_bytes = 0;  ///< of experts, by the sides of the L2
  int64_t copy_bytes = 0;    ///< of gates in parts, beside those in f32
};

/// Memory for the weights, uninitialised. `layout` has one entry a block.
Result<Weights> allocate_weights(const ModelConfig& config, DType dtype,
                                 std::vector<ExpertLayout> layout, CudaStream& stream);
/// Fills them from a checkpoint.
Status upload_weights(const WeightReader& reader, const ModelConfig& config, Weights& weights,
                      CudaStream& stream);
/// Places packed experts by the sides of the L2, once they are there.
Status place_experts(const ModelConfig& config, const Weights& weights, CudaStream& stream);
/// The parts of the gates in bf16, once the gates are there.
Status split_gates(Weights& weights, CudaStream& stream);
/// Fills them with numbers that keep the size of activations, and tokens apart: matrices uniform with variance 1 / k; those
/// that add to the residual stream have 1 / (2 L) of it (Radford et al. 2019, 2.3), without which attention, a mean over
/// positions, makes tokens ever more alike, so that the last layers send all of them to the same few experts; norms one.
/// Embeddings share `spread` times one row, so the experts' mean logits lie `spread` deviations of a token's logits apart.
Status make_weights(const ModelConfig& config, float spread, Weights& weights, CudaStream& stream);

}  // namespace switchyard::model::cuda
