// SPDX-License-Identifier: Apache-2.0
// The MoE layers that bench moe knows by name, and how others are written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace switchyard::cli {

struct MoeShape {
  std::string name;
  int num_experts = 0, top_k = 0;    ///< E, K of the model
  int64_t width = 0, ffn_width = 0;  ///< D, F
  int layers = 1;                    ///< MoE layers of the model
  /// Ranks that share the experts; this machine is one of them, holds E / ranks experts and computes
  /// the picks that fall on them. Tokens are then those of all ranks together.
  int ranks = 1;

  int num_slots() const noexcept { return num_experts / ranks; }
  /// Parameters of an expert.
  int64_t expert_parameters() const noexcept { return 3 * width * ffn_width; }

  /// A known name, or "E/KxDxF" such as 64/8x2048x1024. Errors: bad_request with the rule or the
  /// known names.
  static Result<MoeShape> parse(std::string_view text);
  static std::string known_names();
};

}  // namespace switchyard::cli
