// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: inverse frequencies with their scalings, and the cos and sin of a
// step's positions.
//
//   inv_i = theta^(-2 i / r), i in [0, r/2);  angle = float(position) * float(inv_i);  cos and sin
//   times a factor A
// Source: Su et al. 2021, arXiv 2104.09864; Peng et al. 2023, arXiv 2309.00071 (yarn); Llama 3
// config (llama3).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace switchyard::attention {

struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, dynamic, yarn, llama3 };
  int rotary_dim = 0;  ///< r
  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;
  int max_positions = 0;       ///< the model's max_position_embeddings (dynamic)
  int original_positions = 0;  ///< length that the model was first trained at (yarn, llama3)
  double beta_fast = 32, beta_slow = 1;                   ///< yarn
  bool truncate = true;                                   ///< yarn: bounds to whole dimensions
  double mscale = 0, mscale_all_dim = 0;                  ///< yarn
  std::optional<double> attention_factor = std::nullopt;  ///< yarn: overrides A
  double low_freq_factor = 1, high_freq_factor = 4;       ///< llama3
};

class RopeTable {
 public:
  /// Errors: Code::bad_file for parameters that give no finite frequencies.
  static Result<RopeTable> create(const RopeSpec& spec);

  /// cos and sin [T, r/2] f32 for each token's position. current_length [T] is the length of the
  /// token's sequence after this step; only dynamic scaling looks at it.
  void fill(std::span<const int32_t> position, std::span<const int32_t> current_length, float* cos,
            float* sin, const Stream& stream) const;

  std::span<const double> inv_freq() const noexcept { return inv_freq_; }
  double attention_factor() const noexcept { return attention_factor_; }

 private:
  RopeSpec spec_;
  std::vector<double> inv_freq_;  // [r/2]
  double attention_factor_ = 1;
};

}  // namespace switchyard::attention
