// SPDX-License-Identifier: Apache-2.0
// A token's random numbers, by (seed, layer, number of the token, use, index): see RandomPlace.
#pragma once
#include <cmath>
#include <cstdint>

#include "base/random.h"
#include "moe/route/selector.h"

namespace switchyard::moe {

/// Keeps the numbers of different uses apart.
enum class Draw : uint32_t { noise = 1, second_expert = 2 };

/// Four words for token `t` of the call; `block` counts on within one use.
inline PhiloxBlock draw_words(const RandomPlace& place, int64_t t, Draw use,
                              uint32_t block) noexcept {
  const uint64_t token = place.first_token + static_cast<uint64_t>(t);
  return philox4x32({static_cast<uint32_t>(token), static_cast<uint32_t>(token >> 32),
                     block | static_cast<uint32_t>(use) << 28, place.layer},
                    {static_cast<uint32_t>(place.seed), static_cast<uint32_t>(place.seed >> 32)});
}

/// In [0, 1).
inline float draw_uniform(const RandomPlace& place, int64_t t, Draw use) noexcept {
  return unit_float(draw_words(place, t, use, 0)[0]);
}

/// Standard normal number `e` of a token. Source: Box and Muller 1958.
inline float draw_normal(const RandomPlace& place, int64_t t, int e) noexcept {
  const PhiloxBlock words = draw_words(place, t, Draw::noise, static_cast<uint32_t>(e) / 2);
  const double radius = std::sqrt(-2 * std::log(1 - unit_double(words[0], words[1])));
  const double angle = 6.283185307179586 * unit_double(words[2], words[3]);
  return static_cast<float>(radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace switchyard::moe
