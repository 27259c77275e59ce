// SPDX-License-Identifier: Apache-2.0
// Runs a selector over logits in a vector, with poisoned outputs.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "moe/route/table.h"

namespace switchyard::moe {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

struct Picks {
  std::vector<int32_t> expert;
  std::vector<float> weight;
  int64_t unusable_rows = 0;
};

/// The picks of spec.selector for in.logits [T, E]; in.logits and in.tokens are set here.
inline Picks select_picks(const RouterSpec& spec, const std::vector<float>& logits,
                          SelectInput in = {}, int threads = 1) {
  const Selector* selector = find_selector(spec.selector).value();
  selector->check(spec).value();
  in.logits = logits.data();
  in.tokens = static_cast<int64_t>(logits.size()) / spec.num_experts;
  const auto picks = static_cast<size_t>(in.tokens) * columns_of(*selector, spec);
  Picks found{std::vector<int32_t>(picks, -77), std::vector<float>(picks, kNan)};
  Pool pool({.num_threads = threads, .pin = false});
  found.unusable_rows =
      selector->select(spec, in, {found.expert.data(), found.weight.data()}, Stream({}, pool));
  return found;
}

inline std::vector<float> random_logits(int64_t count, uint32_t seed, float deviation = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& z : logits) z = normal(random);
  return logits;
}

/// Logits in which ties, masks, huge and tiny numbers and unusable rows are common.
inline std::vector<float> awkward_logits(int64_t tokens, int num_experts, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits;
  for (int64_t t = 0; t < tokens; ++t) {
    const uint32_t kind = random() % 8;
    for (int e = 0; e < num_experts; ++e) {
      const auto step = static_cast<float>(random() % 5) - 2;
      float z = step;                                       // 0: five values, many ties
      if (kind == 1) z = step * 100;                        // scores that vanish or saturate
      if (kind == 2) z = random() % 3 == 0 ? -kInf : step;  // masked experts
      if (kind == 3) z = step * std::numeric_limits<float>::max() / 2;
      if (kind == 4) z = step * 1e-7f;  // scores a few bits apart
      if (kind == 5) z = -200 + step;   // sigmoids below the smallest f32
      if (kind == 6) z = 0;             // all equal
      if (kind == 7) z = random() % 40 == 0 ? kNan : step;
      logits.push_back(z);
    }
  }
  return logits;
}

}  // namespace switchyard::moe
