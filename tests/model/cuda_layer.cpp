// SPDX-License-Identifier: Apache-2.0
#include "model/cuda_layer.h"

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/ops/moe_pack.h"
#include "tensor/float_types.h"

namespace switchyard::test {
namespace {

// Normal numbers that bf16 holds exactly.
std::vector<float> normals(int64_t count, double deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = to_float(to_bf16(normal(random)));
  return values;
}

std::vector<std::byte> bytes_of(const float* values, int64_t count, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const Bf16 narrow = to_bf16(values[i]);
    if (dtype == DType::bf16) std::memcpy(bytes.data() + i * 2, &narrow, 2);
    if (dtype == DType::f32) std::memcpy(bytes.data() + i * 4, values + i, 4);
  }
  return bytes;
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

SmallBlock::SmallBlock(CudaStream&, const RouterSpec& spec, DType dtype, uint32_t seed)
    : spec_(spec), dtype_(dtype), seed_(seed) {
  const int64_t each = spec.num_experts * kWidth * kFfn;
  gate_ = normals(each, 1 / std::sqrt(double{kWidth}), seed + 1);
  up_ = normals(each, 1 / std::sqrt(double{kWidth}), seed + 2);
  down_ = normals(each, 1 / std::sqrt(double{kFfn}), seed + 3);
}

model::cuda::BlockWeights SmallBlock::weights(CudaStream& stream,
                                              model::cuda::ExpertLayout layout) {
  const int64_t part = kWidth * kFfn;
  std::vector<std::byte> gate_up, down;
  for (int e = 0; e < spec_.num_experts; ++e) {
    const auto gate = bytes_of(gate_.data() + e * part, part, dtype_);
    const auto up = bytes_of(up_.data() + e * part, part, dtype_);
    const auto out = bytes_of(down_.data() + e * part, part, dtype_);
    if (layout == model::cuda::ExpertLayout::plain) {
      append(gate_up, gate);
      append(gate_up, up);
      append(down, out);
      continue;
    }
    const auto words = [](const std::vector<std::byte>& bytes) {
      return reinterpret_cast<const uint16_t*>(bytes.data());
    };
    std::vector<std::byte> w13(static_cast<size_t>(MoePack::w13_bytes(kWidth, kFfn)));
    std::vector<std::byte> w2(static_cast<size_t>(MoePack::w2_bytes(kWidth, kFfn)));
    moe_pack_w13(words(gate), words(up), kWidth, kFfn, reinterpret_cast<uint16_t*>(w13.data()));
    moe_pack_w2(words(out), kWidth, kFfn, reinterpret_cast<uint16_t*>(w2.data()));
    append(gate_up, w13);
    append(down, w2);
  }
  model::cuda::BlockWeights block;
  kept_.emplace_back(stream, gate_up);
  block.experts_gate_up = kept_.back().data();
  kept_.emplace_back(stream, down);
  block.experts_down = kept_.back().data();
  return block;
}

const void* SmallBlock::input(CudaStream& stream, int64_t tokens) {
  x_ = normals(tokens * kWidth, 1, seed_ + 4);
  kept_.emplace_back(stream, bytes_of(x_.data(), tokens * kWidth, dtype_));
  return kept_.back().data();
}

// down(silu(gate x) * (up x)) of scale * x.
std::vector<float> SmallBlock::expert_output(const float* x, double scale, int expert) const {
  const int64_t part = kWidth * kFfn;
  std::vector<double> hidden(kFfn);
  for (int64_t f = 0; f < kFfn; ++f) {
    double gate = 0, up = 0;
    for (int64_t d = 0; d < kWidth; ++d) {
      const double value = scale * double{x[d]};
      gate += value * double{gate_[static_cast<size_t>(expert * part + f * kWidth + d)]};
      up += value * double{up_[static_cast<size_t>(expert * part + f * kWidth + d)]};
    }
    hidden[static_cast<size_t>(f)] = gate / (1 + std::exp(-gate)) * up;
  }
  std::vector<float> out(kWidth);
  for (int64_t d = 0; d < kWidth; ++d) {
    double sum = 0;
    for (int64_t f = 0; f < kFfn; ++f) {
      sum += hidden[static_cast<size_t>(f)] *
             double{down_[static_cast<size_t>(expert * part + d * kFfn + f)]};
    }
    out[static_cast<size_t>(d)] = static_cast<float>(sum);
  }
  return out;
}

std::vector<double> SmallBlock::expected(const std::vector<int32_t>& expert,
                                         const std::vector<float>& weight, int64_t tokens) const {
  const int64_t columns = std::ssize(expert) / tokens;
  std::vector<double> y(static_cast<size_t>(tokens * kWidth), 0);
  for (size_t i = 0; i < expert.size(); ++i) {
    if (expert[i] < 0) continue;
    const int64_t t = static_cast<int64_t>(i) / columns;
    const double inside = spec_.weight_on_input ? double{weight[i]} : 1;
    const double outside = spec_.weight_on_input ? 1 : double{weight[i]};
    const auto out = expert_output(x_.data() + t * kWidth, inside, expert[i]);
    for (int64_t d = 0; d < kWidth; ++d) {
      y[static_cast<size_t>(t * kWidth + d)] += outside * double{out[static_cast<size_t>(d)]};
    }
  }
  return y;
}

}  // namespace switchyard::test
