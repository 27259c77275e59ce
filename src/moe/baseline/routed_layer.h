// SPDX-License-Identifier: Apache-2.0
// A MoE layer whose routing is given, executed in one of several ways over the same weights: what
// benchmarks and tests compare. The first way is that of moe::Layer; the others are baselines.
//
//   y[t] += sum over K of weight[t, k] * down(silu(gate x[t]) * (up x[t]))     x, y [T, D] f32
// A pick of -1 adds nothing: it was dropped, or its expert lives on another rank.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "moe/baseline/naive.h"
#include "moe/exchange/exchange.h"
#include "moe/experts.h"

namespace switchyard::moe {

enum class Execution : uint8_t {
  grouped,  ///< one grouped GEMM for all experts, rows without padding
  naive,    ///< one expert after another (naive.h)
  padded,   ///< C rows for every expert (padded.h)
};
inline constexpr std::string_view kExecutionNames[] = {"grouped", "naive", "padded"};
constexpr std::string_view execution_name(Execution execution) {
  return kExecutionNames[static_cast<int>(execution)];
}

struct RoutedLayerSpec {
  int num_slots = 0, top_k = 0;      ///< S (the experts that live here), K
  int64_t width = 0, ffn_width = 0;  ///< D, F
  int64_t max_tokens = 0;            ///< most T
  int64_t max_capacity = 0;          ///< most C of padded; 0: never padded
  bool naive = false;                ///< keeps a second copy of the weights for naive
  DType weight = DType::bf16;

  /// Bytes of weights, and of the arena of one call, before kernels pad them: for a check of memory.
  int64_t weight_bytes() const noexcept;
  int64_t step_bytes() const noexcept;
};

class RoutedLayer {
 public:
  static Result<RoutedLayer> create(const RoutedLayerSpec& spec);

  /// gate and up [F, D], down [D, F]. Different slots may be packed by different threads.
  void pack(int slot, const TensorView& gate, const TensorView& up, const TensorView& down);

  /// `capacity` is C of padded, at least the largest load.
  void forward(Execution execution, const float* x, const Routing& routing, int64_t capacity,
               float* y, const Step& step);

  /// Arena room of any forward().
  int64_t room(int num_threads) const noexcept;
  const Experts& experts() const noexcept { return experts_; }

 private:
  RoutedLayerSpec spec_;
  Experts experts_;
  std::optional<NaiveExperts> naive_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace switchyard::moe
