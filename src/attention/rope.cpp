// SPDX-License-Identifier: Apache-2.0
#include "attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace switchyard::attention {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

std::vector<double> plain_frequencies(double theta, int rotary_dim) {
  std::vector<double> inv(rotary_dim / 2);
  for (int i = 0; i < rotary_dim / 2; ++i) inv[i] = std::pow(theta, -2.0 * i / rotary_dim);
  return inv;
}

// Index of the dimension that turns `turns` times over the original length.
double yarn_dimension(const RopeSpec& spec, double turns) {
  return spec.rotary_dim * std::log(spec.original_positions / (turns * kTwoPi)) /
         (2 * std::log(spec.theta));
}

// Low dimensions keep their frequency, high ones are divided by the factor, a ramp lies between.
void apply_yarn(const RopeSpec& spec, std::vector<double>& inv) {
  double low = yarn_dimension(spec, spec.beta_fast), high = yarn_dimension(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, spec.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv[i] = inv[i] / spec.factor * ramp + inv[i] * (1 - ramp);
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeSpec& spec) {
  if (spec.attention_factor) return *spec.attention_factor;
  if (spec.mscale != 0 && spec.mscale_all_dim != 0) {
    return yarn_mscale(spec.factor, spec.mscale) / yarn_mscale(spec.factor, spec.mscale_all_dim);
  }
  return yarn_mscale(spec.factor, 1);
}

// Long waves are stretched by the factor, short ones kept. Files exist with equal bounds: then
// nothing lies between.
void apply_llama3(const RopeSpec& spec, std::vector<double>& inv) {
  const double original = spec.original_positions;
  const double longest = original / spec.low_freq_factor,
               shortest = original / spec.high_freq_factor;
  for (double& f : inv) {
    const double wave = kTwoPi / f;
    if (wave < shortest) continue;
    if (wave > longest || spec.low_freq_factor == spec.high_freq_factor) {
      f /= wave > longest ? spec.factor : 1;
      continue;
    }
    const double smooth =
        (original / wave - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
    f = (1 - smooth) * f / spec.factor + smooth * f;
  }
}

// Base of dynamic NTK scaling for a sequence that has grown to `length`.
double dynamic_theta(const RopeSpec& spec, double length) {
  const double longest = std::max<double>(length, spec.max_positions), r = spec.rotary_dim;
  const double stretch = spec.factor * longest / spec.max_positions - (spec.factor - 1);
  return spec.theta * std::pow(stretch, r / (r - 2));
}

}  // namespace

Result<RopeTable> RopeTable::create(const RopeSpec& spec) {
  RopeTable table;
  table.spec_ = spec;
  table.inv_freq_ = plain_frequencies(spec.theta, spec.rotary_dim);
  switch (spec.scaling) {
    case RopeSpec::Scaling::none:
    case RopeSpec::Scaling::dynamic:
      break;
    case RopeSpec::Scaling::linear:
      for (double& f : table.inv_freq_) f /= spec.factor;
      break;
    case RopeSpec::Scaling::yarn:
      apply_yarn(spec, table.inv_freq_);
      table.attention_factor_ = yarn_attention_factor(spec);
      break;
    case RopeSpec::Scaling::llama3:
      apply_llama3(spec, table.inv_freq_);
      break;
  }
  for (const double f : table.inv_freq_) {
    if (std::isfinite(f) && f > 0) continue;
    return fail(Code::bad_file,
                "config.json: rope settings give the frequency {} (theta {}, factor {}): expected "
                "a positive number",
                f, spec.theta, spec.factor);
  }
  return table;
}

void RopeTable::fill(std::span<const int32_t> position, std::span<const int32_t> current_length,
                     float* cos, float* sin, const Stream& stream) const {
  const int64_t pairs = std::ssize(inv_freq_);
  if (pairs == 0) return;
  const auto factor = static_cast<float>(attention_factor_);
  const bool dynamic = spec_.scaling == RopeSpec::Scaling::dynamic;
  // The angle is a product of two f32 numbers, as in the reference; cos and sin are then nearly
  // exact.
  stream.pool().for_range(
      std::ssize(position), 1 + 2048 / pairs, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          const double theta = dynamic ? dynamic_theta(spec_, current_length[t]) : 0;
          for (int64_t i = 0; i < pairs; ++i) {
            const double inv =
                dynamic ? std::pow(theta, -2.0 * static_cast<double>(i) / spec_.rotary_dim)
                        : inv_freq_[i];
            const float angle = static_cast<float>(position[t]) * static_cast<float>(inv);
            cos[t * pairs + i] = std::cos(angle) * factor;
            sin[t * pairs + i] = std::sin(angle) * factor;
          }
        }
      });
}

}  // namespace switchyard::attention
