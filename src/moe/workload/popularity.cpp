// SPDX-License-Identifier: Apache-2.0
#include "moe/workload/popularity.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "moe/workload/draw.h"

namespace switchyard::moe {
namespace {

constexpr double kMaxExponent = 10;
constexpr double kPowerLawEnd = 0.8 * 4096;  // of aiconfigurator's tables: 0.8 of their tokens

/// Expert of each rank: the seed's shuffle of 0 .. E-1.
std::vector<int> ranked_experts(int num_experts, uint64_t seed) {
  std::vector<int> experts(static_cast<size_t>(num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (int i = num_experts - 1; i > 0; --i) {
    const double unit = unit_draw(seed, {0, static_cast<uint32_t>(i), 0, kPopularityStream});
    std::swap(experts[i], experts[static_cast<int>(unit * (i + 1))]);
  }
  return experts;
}

/// The inverse of the distribution function of x^-a on [1, end].
double power_law_value(double exponent, double unit) {
  const double power = 1 - exponent;
  if (std::abs(power) < 1e-9) return std::pow(kPowerLawEnd, unit);
  return std::pow((std::pow(kPowerLawEnd, power) - 1) * unit + 1, 1 / power);
}

}  // namespace

Result<Popularity> Popularity::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (text == "uniform") return Popularity{};
  Popularity popularity;
  popularity.kind = name == "zipf" ? PopularityKind::zipf : PopularityKind::power_law;
  if (colon == std::string_view::npos || (name != "zipf" && name != "powerlaw")) {
    return fail(Code::bad_request,
                "routing '{}' is unknown; known: uniform, zipf:EXPONENT, powerlaw:EXPONENT", text);
  }
  const std::string_view number = text.substr(colon + 1);
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, popularity.exponent);
  if (error != std::errc() || stop != end || !(popularity.exponent >= 0) ||
      popularity.exponent > kMaxExponent) {
    return fail(Code::bad_request,
                "routing '{}': expected an exponent from 0 to {} after {}:", text, kMaxExponent,
                name);
  }
  return popularity;
}

std::string Popularity::text() const {
  if (kind == PopularityKind::uniform) return "uniform";
  return fmt::format("{}:{}", kind == PopularityKind::zipf ? "zipf" : "powerlaw", exponent);
}

std::vector<double> Popularity::weights(int num_experts, uint64_t seed) const {
  std::vector<double> weights(static_cast<size_t>(num_experts), 1.0);
  const std::vector<int> experts = ranked_experts(num_experts, seed);
  for (int r = 0; r < num_experts; ++r) {
    double& weight = weights[static_cast<size_t>(experts[r])];
    if (kind == PopularityKind::zipf) {
      weight = std::pow(1.0 + r, -exponent);
    } else if (kind == PopularityKind::power_law) {
      weight = power_law_value(
          exponent, unit_draw(seed, {1, static_cast<uint32_t>(r), 0, kPopularityStream}));
    }
  }
  return weights;
}

}  // namespace switchyard::moe
