// SPDX-License-Identifier: Apache-2.0
// Popularity: how much more some experts are wanted than others, as the weights of a draw without
// replacement. For benchmarks, simulations and tests; a model's router is in moe/route.
//
//   uniform      every expert alike
//   zipf:s       the r-th most popular expert has weight r^-s (s = 0 is uniform). Lina measured
//                exponents near 1.0 for 4 experts and 0.6 for 16 (arXiv 2210.17223, Enwik8)
//   powerlaw:a   every weight is drawn from a density x^-a on [1, 3277]: the loads that NVIDIA's
//                aiconfigurator fits to DeepSeek-R1 (a = 1.01) and Qwen3-235B (a = 1.2)
// Which expert has which rank is shuffled by the seed, so that popular experts are no neighbours.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::moe {

enum class PopularityKind : uint8_t { uniform, zipf, power_law };

struct Popularity {
  PopularityKind kind = PopularityKind::uniform;
  double exponent = 0;

  /// "uniform", "zipf:1.0", "powerlaw:1.01". Errors: Code::bad_request with what is known.
  static Result<Popularity> parse(std::string_view text);
  std::string text() const;
  /// Weights [E], all above 0.
  std::vector<double> weights(int num_experts, uint64_t seed) const;
};

}  // namespace switchyard::moe
