// SPDX-License-Identifier: Apache-2.0
// The cases of the RMS norm and of the preparation of q, k, v, run on every entry of the tables.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ops/norm_rope_act.h"

namespace switchyard::cases {

struct RmsNormCase {
  std::string_view name;
  int64_t width, tokens;
  bool add = true;   ///< there is something to add to the residual stream
  bool norm = true;  ///< the norm is wanted, not the sum alone
  float add_scale = 1;
};

inline std::vector<RmsNormCase> rms_norm_cases() {
  return {
      {"no tokens", 64, 0},
      {"one value", 1, 1},
      {"below a register", 5, 3},
      {"a register of 8", 8, 2},
      {"one above a register of 16", 17, 2, false},
      {"around four registers", 63, 5},
      {"around four registers, one more", 65, 5, true, true, 0.22f},
      {"a prime", 331, 7, false},
      {"only the sum", 100, 3, true, false, -2},
      {"neither sum nor norm", 100, 3, false, false},
      {"a model's width", 2048, 1},
      {"tokens over several threads", 2048, 67, true, true, 0.5f},
  };
}

struct PrepareQkvCase {
  std::string_view name;
  int heads, kv_heads, head_dim, rotary_dim, block_tokens;
  int64_t tokens;
  QkNorm norm = QkNorm::none;
  float clip = 0;
};

inline std::vector<PrepareQkvCase> prepare_qkv_cases() {
  constexpr QkNorm kNone = QkNorm::none, kPerHead = QkNorm::per_head, kFull = QkNorm::full_width;
  return {
      {"no tokens", 2, 1, 16, 16, 16, 0},
      {"one token", 2, 1, 16, 16, 16, 1},
      {"head of 20", 4, 2, 20, 20, 8, 13, kPerHead},
      {"head of 24", 3, 1, 24, 24, 16, 7},
      {"head of 80, rope on a part", 6, 2, 80, 32, 16, 5},
      {"head of 128, norm per head", 4, 4, 128, 128, 16, 9, kPerHead},
      {"norm over the full width", 5, 5, 20, 20, 16, 11, kFull},
      {"norm over the full width, few key heads", 8, 2, 48, 48, 32, 3, kFull},
      {"clip", 4, 2, 32, 32, 16, 6, kNone, 0.5f},
      {"norm over the full width, then clip", 4, 2, 32, 32, 16, 6, kFull, 0.75f},
      {"norm per head, then clip", 4, 2, 32, 16, 16, 6, kPerHead, 0.75f},
      {"no rope", 3, 3, 40, 0, 16, 4},
      {"rope on six values", 2, 2, 32, 6, 24, 5, kPerHead},
      {"rope on all but two values", 2, 1, 34, 32, 16, 5},
      {"head of 7, rope on two values", 2, 2, 7, 2, 8, 5},
      {"blocks of 256", 2, 1, 16, 16, 256, 30},
      {"tokens over several threads", 16, 4, 128, 128, 16, 67, kPerHead},
  };
}

}  // namespace switchyard::cases
