// SPDX-License-Identifier: Apache-2.0
// Places in device memory, and random content.
#include "model/cuda/weights.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cuda/step.h"
#include "kernels/ops/moe_pack.h"

namespace switchyard::model::cuda {
namespace {

// Hands out pieces of memory from `base` on; from null it only counts.
class Places {
 public:
  explicit Places(std::byte* base) : base_(base) {}

  std::byte* take(int64_t bytes) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    return at;
  }
  float* take_floats(int64_t count) { return reinterpret_cast<float*>(take(count * 4)); }
  Matrix take_matrix(int64_t n, int64_t k, DType dtype, bool bias = false) {
    Matrix matrix{take(n * k * dtype_bytes(dtype)), n, k, nullptr};
    if (bias) matrix.bias = take_floats(n);
    return matrix;
  }
  /// The next piece starts at a multiple of this.
  void align(int64_t bytes) { used_ = (used_ + bytes - 1) / bytes * bytes; }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

int64_t gate_up_bytes(ExpertLayout layout, int64_t width, int64_t ffn, DType dtype) {
  return layout == ExpertLayout::packed ? MoePack::w13_bytes(width, ffn)
                                        : 2 * ffn * width * dtype_bytes(dtype);
}
int64_t down_bytes(ExpertLayout layout, int64_t width, int64_t ffn, DType dtype) {
  return layout == ExpertLayout::packed ? MoePack::w2_bytes(width, ffn)
                                        : ffn * width * dtype_bytes(dtype);
}

BlockWeights place_block(const ModelConfig& config, const BlockSpec& spec, DType dtype,
                         ExpertLayout layout, Places& places, int64_t& expert_bytes) {
  const attention::GqaSpec& a = spec.attention;
  const int64_t width = config.width, q = int64_t{a.heads} * a.head_dim,
                kv = int64_t{a.kv_heads} * a.head_dim;
  BlockWeights block;
  block.attention_norm = places.take_floats(width);
  block.ffn_norm = places.take_floats(width);
  if (a.qk_norm != QkNorm::none) {
    const bool full = a.qk_norm == QkNorm::full_width;
    block.q_norm = places.take_floats(full ? q : a.head_dim);
    block.k_norm = places.take_floats(full ? kv : a.head_dim);
  }
  block.qkv = places.take_matrix(q + 2 * kv, width, dtype, a.qkv_bias);
  block.output = places.take_matrix(width, q, dtype, a.output_bias);
  const int64_t dense = spec.router ? spec.shared.width : spec.ffn_width;
  if (dense > 0) {
    block.gate_up = places.take_matrix(2 * dense, width, dtype);
    block.down = places.take_matrix(width, dense, dtype);
  }
  if (!spec.router) return block;
  const int64_t experts = spec.router->num_experts, ffn = spec.ffn_width;
  block.gate = places.take_matrix(experts, width, DType::f32);
  if (dtype == DType::bf16) {
    block.gate_high = places.take(experts * 2 * width * 2);
    block.gate_low = places.take(experts * width * 2);
  }
  if (spec.shared.gated) block.shared_gate = places.take_matrix(1, width, DType::f32);
  places.align(MoePack::kPlacedAlignment);
  const int64_t before = places.used();
  block.experts_gate_up = places.take(experts * gate_up_bytes(layout, width, ffn, dtype));
  places.align(MoePack::kPlacedAlignment);
  block.experts_down = places.take(experts * down_bytes(layout, width, ffn, dtype));
  expert_bytes += places.used() - before;
  return block;
}

int64_t place_all(const ModelConfig& config, std::byte* base, Weights& weights) {
  Places places(base);
  weights.embedding = places.take_matrix(config.vocab, config.width, weights.dtype);
  weights.lm_head = config.tied_embedding
                        ? weights.embedding
                        : places.take_matrix(config.vocab, config.width, weights.dtype);
  weights.final_norm = places.take_floats(config.width);
  weights.blocks.clear();
  weights.expert_bytes = weights.placed_bytes = weights.copy_bytes = 0;
  for (size_t l = 0; l < config.blocks.size(); ++l) {
    const int64_t before = weights.expert_bytes;
    weights.blocks.push_back(place_block(config, config.blocks[l], weights.dtype, weights.layout[l],
                                         places, weights.expert_bytes));
    BlockWeights& block = weights.blocks.back();
    block.sides = weights.memory.sides();
    const bool placed = block.sides.mask != 0 && weights.layout[l] == ExpertLayout::packed;
    if (placed) weights.placed_bytes += weights.expert_bytes - before;
    if (block.gate_high != nullptr) weights.copy_bytes += 3 * block.gate.n * block.gate.k * 2;
  }
  return places.used();
}

constexpr uint64_t kCommonSeed = uint64_t{1} << 40;  // none of the matrices'

// Fills matrices with random numbers, each with a seed of its own.
class Maker {
 public:
  Maker(const Weights& weights, CudaStream& stream)
      : dtype_(weights.dtype),
        to_residual_(0.5 / static_cast<double>(weights.blocks.size())),
        stream_(stream) {}

  void fill(std::byte* to, DType dtype, int64_t count, int64_t k, double variance = 1) {
    if (to == nullptr) return;
    const auto bound = static_cast<float>(std::sqrt(3.0 * variance / static_cast<double>(k)));
    switchyard::cuda::fill_random(to, dtype, count, bound, ++seed_, stream_.handle());
  }
  void fill(const Matrix& matrix, DType dtype, double variance = 1) {
    fill(matrix.data, dtype, matrix.n * matrix.k, matrix.k, variance);
    if (matrix.bias != nullptr) stream_.fill(matrix.bias, 0, matrix.n * 4);
  }
  void fill(const Matrix& matrix) { fill(matrix, dtype_); }
  void fill_to_residual(const Matrix& matrix) { fill(matrix, dtype_, to_residual_); }
  void fill_to_residual(std::byte* to, int64_t count, int64_t k) {
    fill(to, dtype_, count, k, to_residual_);
  }
  // As checkpoints have them: in f32, of values that bf16 can hold.
  void fill_gate(const BlockWeights& block) {
    fill(block.gate, DType::f32);
    if (block.gate.data == nullptr) return;
    switchyard::cuda::round_to_bf16(reinterpret_cast<float*>(block.gate.data),
                                    block.gate.n * block.gate.k, stream_.handle());
  }

 private:
  DType dtype_;
  double to_residual_;  // variance of a sum over all blocks: 1/2 from attention, 1/2 from experts
  CudaStream& stream_;
  uint64_t seed_ = 0;
};

void make_block(const ModelConfig& config, const BlockSpec& spec, const Weights& weights,
                ExpertLayout layout, const BlockWeights& block, Maker& maker) {
  maker.fill(block.qkv);
  maker.fill_to_residual(block.output);
  maker.fill(block.gate_up);
  maker.fill_to_residual(block.down);
  maker.fill_gate(block);
  maker.fill(block.shared_gate, DType::f32);
  if (!spec.router) return;
  const int64_t width = config.width, ffn = spec.ffn_width, each = dtype_bytes(weights.dtype);
  const int64_t experts = spec.router->num_experts;
  maker.fill(block.experts_gate_up, weights.dtype,
             experts * gate_up_bytes(layout, width, ffn, weights.dtype) / each, width);
  maker.fill_to_residual(block.experts_down,
                         experts * down_bytes(layout, width, ffn, weights.dtype) / each, ffn);
}

bool any_gains_from_sides(const ModelConfig& config, const std::vector<ExpertLayout>& layout) {
  bool any = false;
  for (size_t l = 0; l < config.blocks.size(); ++l) {
    const BlockSpec& spec = config.blocks[l];
    if (!spec.router || layout[l] != ExpertLayout::packed) continue;
    any |= MoePack::gains_from_sides(config.width, spec.ffn_width);
  }
  return any;
}

}  // namespace

Result<Weights> allocate_weights(const ModelConfig& config, DType dtype,
                                 std::vector<ExpertLayout> layout, CudaStream& stream) {
  Weights weights;
  weights.dtype = dtype;
  weights.layout = std::move(layout);
  const int64_t bytes = place_all(config, nullptr, weights);
  const bool by_sides = any_gains_from_sides(config, weights.layout);
  SWITCHYARD_ASSIGN(weights.memory, by_sides ? L2Memory::allocate(bytes, "weights", stream)
                                             : L2Memory::allocate_plain(bytes, "weights"));
  place_all(config, weights.memory.data(), weights);
  return weights;
}

Status place_experts(const ModelConfig& config, const Weights& weights, CudaStream& stream) {
  const L2Sides& sides = weights.memory.sides();
  if (sides.mask == 0) return {};
  int64_t most = 0;
  for (const BlockSpec& spec : config.blocks) {
    if (spec.router) most = std::max(most, MoePack::w13_bytes(config.width, spec.ffn_width));
  }
  SWITCHYARD_ASSIGN(const CudaMemory scratch, CudaMemory::allocate(most, "placing experts"));
  const int64_t width = MoePack::padded(config.width);
  for (size_t l = 0; l < weights.blocks.size(); ++l) {
    const BlockSpec& spec = config.blocks[l];
    if (!spec.router || weights.layout[l] != ExpertLayout::packed) continue;
    const int64_t experts = spec.router->num_experts, ffn = MoePack::padded(spec.ffn_width);
    moe_place_on_device(weights.blocks[l].experts_gate_up, experts, 2 * ffn, width, sides,
                        scratch.data(), stream.handle());
    moe_place_on_device(weights.blocks[l].experts_down, experts, width, ffn, sides, scratch.data(),
                        stream.handle());
  }
  return stream.synchronize("place experts");
}

Status split_gates(Weights& weights, CudaStream& stream) {
  if (weights.dtype != DType::bf16) return {};
  std::vector<int32_t> any_low(weights.blocks.size());
  const int64_t bytes = std::ssize(any_low) * 4;
  SWITCHYARD_ASSIGN(const CudaMemory flags, CudaMemory::allocate(bytes, "splitting gates"));
  stream.fill(flags.data(), 0, bytes);
  for (size_t l = 0; l < weights.blocks.size(); ++l) {
    const BlockWeights& block = weights.blocks[l];
    if (block.gate_high == nullptr) continue;
    switchyard::cuda::split_gate({.gate = reinterpret_cast<float*>(block.gate.data),
                                  .num_experts = block.gate.n,
                                  .width = block.gate.k,
                                  .high = block.gate_high,
                                  .low = block.gate_low,
                                  .any_low = flags.as<int32_t>() + l},
                                 stream.handle());
  }
  stream.copy_out(any_low.data(), flags.data(), bytes);
  SWITCHYARD_TRY(stream.synchronize("split gates"));
  for (size_t l = 0; l < weights.blocks.size(); ++l) {
    if (any_low[l] == 0) weights.blocks[l].gate_low = nullptr;
  }
  return {};
}

Status make_weights(const ModelConfig& config, float spread, Weights& weights, CudaStream& stream) {
  Maker maker(weights, stream);
  const Matrix& embedding = weights.embedding;
  maker.fill(embedding.data, weights.dtype, embedding.n * embedding.k, 1);
  SWITCHYARD_ASSIGN(const CudaMemory common,
                    CudaMemory::allocate(embedding.k * 4, "what random embeddings share"));
  switchyard::cuda::fill_random(common.data(), DType::f32, embedding.k, std::sqrt(3.0f),
                                kCommonSeed, stream.handle());
  switchyard::cuda::add_to_rows(embedding.data, weights.dtype, embedding.n, embedding.k,
                                common.as<float>(), spread, stream.handle());
  if (!config.tied_embedding) maker.fill(weights.lm_head);
  const std::vector<float> ones(static_cast<size_t>(config.width), 1.0f);
  const auto set_ones = [&](float* to, int64_t count) {
    for (int64_t done = 0; to != nullptr && done < count; done += std::ssize(ones)) {
      stream.copy_in(to + done, ones.data(), std::min<int64_t>(count - done, std::ssize(ones)) * 4);
    }
  };
  set_ones(weights.final_norm, config.width);
  for (size_t l = 0; l < config.blocks.size(); ++l) {
    const BlockSpec& spec = config.blocks[l];
    const BlockWeights& block = weights.blocks[l];
    const attention::GqaSpec& a = spec.attention;
    const bool full = a.qk_norm == QkNorm::full_width;
    set_ones(block.attention_norm, config.width);
    set_ones(block.ffn_norm, config.width);
    set_ones(block.q_norm, (full ? int64_t{a.heads} : 1) * a.head_dim);
    set_ones(block.k_norm, (full ? int64_t{a.kv_heads} : 1) * a.head_dim);
    make_block(config, spec, weights, weights.layout[l], block, maker);
  }
  SWITCHYARD_TRY(place_experts(config, weights, stream));
  SWITCHYARD_TRY(stream.synchronize("make random weights"));
  return split_gates(weights, stream);
}

}  // namespace switchyard::model::cuda
