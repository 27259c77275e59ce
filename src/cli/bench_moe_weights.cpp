// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_weights.h"

#include <algorithm>

#include "base/random.h"

namespace switchyard::cli {
namespace {

constexpr int64_t kRowShift = 37, kStarts = 4099;

}  // namespace

std::vector<float> bench_noise(int64_t count, double deviation, uint64_t seed) {
  std::vector<float> noise;
  noise.reserve(static_cast<size_t>(count) + 1);
  for (uint32_t i = 0; std::ssize(noise) < count; ++i) {
    const PhiloxBlock words = philox4x32({i, 0, 0, 0}, {static_cast<uint32_t>(seed), 0});
    for (const auto& [a, b] : {std::pair(words[0], words[1]), std::pair(words[2], words[3])}) {
      // The sum of two uniform numbers has a variance of 1/6.
      const float sum = unit_float(a) + unit_float(b) - 1;
      noise.push_back(sum * static_cast<float>(deviation * 2.449489742783178));
    }
  }
  noise.resize(static_cast<size_t>(count));
  return noise;
}

BenchWeights::BenchWeights(const MoeShape& shape) : shape_(shape) {
  const int64_t rows = std::max<int64_t>({shape.width, shape.ffn_width, shape.num_experts});
  const int64_t columns = std::max(shape.width, shape.ffn_width);
  for (const float value : bench_noise(kStarts + rows * kRowShift + columns, 0.02, 1))
    noise_.push_back(to_bf16(value));
}

TensorView BenchWeights::window(uint64_t which, int64_t rows, int64_t columns) const {
  const auto start = static_cast<int64_t>(which * 0x9E3779B97F4A7C15ull % kStarts);
  TensorView view = TensorView::of(noise_.data() + start, {rows, columns});
  view.stride[0] = kRowShift;
  return view;
}

TensorView BenchWeights::gate(int layer, int64_t slot) const {
  return window(static_cast<uint64_t>(layer * 10000 + slot) * 3, shape_.ffn_width, shape_.width);
}
TensorView BenchWeights::up(int layer, int64_t slot) const {
  return window(static_cast<uint64_t>(layer * 10000 + slot) * 3 + 1, shape_.ffn_width,
                shape_.width);
}
TensorView BenchWeights::down(int layer, int64_t slot) const {
  return window(static_cast<uint64_t>(layer * 10000 + slot) * 3 + 2, shape_.width,
                shape_.ffn_width);
}
TensorView BenchWeights::router() const { return window(0, shape_.num_experts, shape_.width); }

}  // namespace switchyard::cli
