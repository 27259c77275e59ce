// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM as one writes it first: expert after expert, row after row, output after output,
// over weights as they lie in the checkpoint. The threads share the outputs of one expert. Kept as
// the baseline of the benchmarks.
#include <cmath>

#include "kernels/cpu/entries.h"
#include "kernels/ops/row_major.h"
#include "kernels/ops/weight_source.h"

namespace switchyard::cpu {
namespace {

// A dot product in partial sums, which any compiler turns into vector code.
template <class Weight>
float dot(const float* x, const Weight* weight, int64_t k) {
  constexpr int kSums = 16;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= k; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += x[i + j] * to_float(weight[i + j]);
  }
  for (; i < k; ++i) sums[i % kSums] += x[i] * to_float(weight[i]);
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

template <class Weight>
class Expert {
 public:
  Expert(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args, int slot)
      : problem_(problem), args_(args), parts_(problem.fusion == Fusion::swiglu ? 2 : 1) {
    const void* slot_weight = args.weight + slot * kRowMajorPacking.slot_bytes(problem);
    weight_ = static_cast<const Weight*>(slot_weight);
    bias_ = problem.bias ? args.bias + slot * parts_ * problem.n : nullptr;
  }

  // Outputs [begin, end) of one row.
  void run(int64_t row, int64_t begin, int64_t end) const {
    const float* x = static_cast<const float*>(args_.x) + row * problem_.k;
    float* y = static_cast<float*>(args_.y) + row * problem_.n;
    for (int64_t n = begin; n < end; ++n) {
      const float value = sum(x, 0, n);
      y[n] = parts_ == 1 ? value : value / (1 + std::exp(-value)) * sum(x, 1, n);
    }
  }

 private:
  float sum(const float* x, int64_t part, int64_t n) const {
    const int64_t at = part * problem_.n + n;
    const float value = dot(x, weight_ + at * problem_.k, problem_.k);
    return bias_ != nullptr ? value + bias_[at] : value;
  }

  const GroupedGemm::Problem& problem_;
  const GroupedGemm::Args& args_;
  int64_t parts_;
  const Weight* weight_ = nullptr;
  const float* bias_ = nullptr;
};

template <class Weight>
void run_all(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
             const Stream& stream) {
  for (int slot = 0; slot < problem.groups; ++slot) {
    const int64_t first = args.slot_offset[slot], last = args.slot_offset[slot + 1];
    if (first == last) continue;
    const Expert<Weight> expert(problem, args, slot);
    stream.pool().for_range(problem.n, 16, [&](int64_t begin, int64_t end, int) {
      const int64_t start = args.split != nullptr ? now_ns() : 0;
      for (int64_t row = first; row < last; ++row) expert.run(row, begin, end);
      if (args.split != nullptr) {
        args.split->busy_ticks.fetch_add(now_ns() - start, std::memory_order_relaxed);
      }
    });
  }
}

}  // namespace

void grouped_gemm_naive(const GroupedGemm::Problem& problem, const GroupedGemm::Args& args,
                        std::span<std::byte>, const Stream& stream) noexcept {
  if (problem.weight == DType::bf16) {
    run_all<Bf16>(problem, args, stream);
  } else {
    run_all<float>(problem, args, stream);
  }
}

}  // namespace switchyard::cpu
