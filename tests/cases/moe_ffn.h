// SPDX-License-Identifier: Apache-2.0
// The cases of the device MoE layer, run on every entry of its table that accepts them. Widths are small, because the
// reference is plain; each case stands for a border that a fast kernel has.
#pragma once
#include <string_view>
#include <vector>

#include "kernels/ops/moe_ffn.h"

namespace switchyard::cases {

/// How the logits favour experts.
enum class Popularity : uint8_t {
  uniform,
  zipf,      ///< expert e is 1 / (e + 1) as popular as the first
  one,       ///< the last expert is everybody's first pick
  few_only,  ///< only the first K experts are ever picked
  uneven,  ///< the means of experts' logits are normal, two deviations apart: hot, cold and unused ones
};

struct MoeFfnCase {
  std::string_view name;
  int64_t tokens;
  int experts, top_k;
  int64_t width, ffn_width;
  Popularity popularity = Popularity::uniform;
  GluActivation activation = GluActivation::swiglu;
  bool shared = false;     ///< with a shared expert's addend
  bool next_norm = false;  ///< with the next layer's norm
  int dead_tokens = 0;     ///< at the end, without picks
  bool bias = false;       ///< of the experts
  bool weight_on_input = false;
};

inline std::vector<MoeFfnCase> moe_ffn_cases() {
  using enum Popularity;
  using enum GluActivation;
  return {
      {"no tokens", 0, 8, 2, 256, 128},
      {"one token, one expert", 1, 1, 1, 64, 64},
      {"one token", 1, 128, 8, 2048, 768, uniform, swiglu, true, true},
      {"two tokens of a wide layer", 2, 8, 2, 4096, 1024, uniform, swiglu, false, true},
      {"seven tokens", 7, 64, 8, 2048, 1024, uniform, swiglu, true},
      {"eight tokens, 256 experts", 8, 256, 8, 7168, 64, uniform, swiglu, false, true},
      {"nine tokens", 9, 32, 8, 7168, 320, zipf},
      {"eight tokens of one expert", 8, 16, 1, 512, 2048, one},
      {"sixteen tokens of one expert", 16, 16, 2, 1024, 512, one, swiglu, true, true},
      {"sixteen tokens, three atoms a block", 16, 8, 4, 2880, 192, uniform, geglu_tanh},
      {"few tokens, five atoms a block", 3, 8, 3, 5120, 128, zipf, geglu_erf},
      {"few tokens, dead ones behind", 6, 16, 4, 1024, 256, uniform, swiglu, false, true, 2},
      {"few tokens, hidden width of 1", 5, 8, 2, 128, 1},
      {"few tokens, hidden width of 100", 5, 8, 2, 192, 100, uniform, reglu},
      {"31 tokens", 31, 8, 2, 256, 128},
      {"33 tokens", 33, 16, 3, 256, 192, zipf, swiglu, true, true},
      {"64 tokens, 128 experts", 64, 128, 8, 512, 256, zipf},
      {"65 tokens, dead ones behind", 65, 32, 4, 256, 64, uniform, swiglu, false, false, 7},
      {"257 tokens", 257, 64, 6, 512, 320, zipf, swiglu, true, true},
      {"257 tokens of one expert", 257, 8, 1, 256, 512, one},
      {"300 tokens of the same few", 300, 40, 4, 320, 128, few_only},
      {"512 tokens, hot and cold experts", 512, 128, 8, 256, 128, uneven, swiglu, false, true},
      {"512 tokens, few wide experts, hot and cold", 512, 8, 2, 4096, 256, uneven},
      {"700 tokens, few experts, hot and cold", 700, 16, 2, 1024, 512, uneven, geglu_tanh, true},
      {"550 tokens, wide experts with a long hidden row", 550, 5, 2, 4096, 4096, uniform,
       geglu_tanh, false, true, 0, true},
      {"340 tokens, wide experts in parts, hot and cold", 340, 8, 2, 4096, 4096, uneven},
      {"512 tokens, wide experts in parts, hot and cold", 512, 8, 2, 4096, 4096, uneven, swiglu,
       false, true, 0, true},
      {"900 tokens of one wide expert, with a long hidden row in parts", 900, 1, 1, 7168, 8192},
      {"1000 tokens of two wide experts, in parts", 1000, 2, 1, 7168, 8192, uniform, swiglu, false,
       true, 0, true},
      {"1024 tokens", 1024, 8, 2, 512, 256, uniform, swiglu, false, true},
      {"3000 tokens, hot and cold experts", 3000, 64, 4, 256, 128, uneven, swiglu, true, true},
      {"1024 tokens, 256 experts", 1024, 256, 8, 256, 128, zipf},
      {"5000 tokens", 5000, 32, 4, 128, 64, zipf},
      {"width that is no multiple of 64", 40, 8, 2, 72, 96, uniform, geglu_tanh, true, true},
      {"width and hidden width of 8", 4, 4, 2, 8, 8},
      {"width of 200, hidden width of 100", 70, 8, 8, 200, 100},
      {"512 experts", 50, 512, 10, 128, 64},
      {"rows with more than 2^31 values", 16400, 32, 32, 4096, 16},
      {"one token, biases", 1, 16, 4, 1024, 384, uniform, swiglu, false, true, 0, true},
      {"eight tokens, biases, joined sums", 8, 8, 2, 4096, 1024, zipf, swiglu, true, false, 0,
       true},
      {"sixteen tokens, biases", 16, 32, 8, 2048, 192, uniform, geglu_tanh, false, false, 0, true},
      {"200 tokens, biases", 200, 16, 4, 256, 320, zipf, swiglu, true, true, 0, true},
      {"900 tokens, biases, gelu", 900, 8, 2, 512, 256, uniform, geglu_erf, false, true, 0, true},
      {"300 tokens, gelu by tanh", 300, 16, 2, 256, 128, uniform, geglu_tanh},
      {"300 tokens, gelu by erf", 300, 16, 2, 384, 192, uniform, geglu_erf},
      {"1500 tokens, relu", 1500, 8, 4, 256, 128, zipf, reglu},
      {"hidden width of 100, biases", 70, 8, 8, 256, 100, uniform, swiglu, false, false, 0, true},
      {"width of 200, biases", 30, 8, 2, 200, 40, uniform, reglu, false, false, 0, true},
      {"one token, weight on the input", 1, 16, 1, 1024, 256, uniform, swiglu, true, true, 0, false,
       true},
      {"150 tokens, weights on the input", 150, 16, 3, 512, 128, zipf, swiglu, true, true, 5, true,
       true},
  };
}

/// A case for every tile of the entries (by rows of an expert) but 128 x 128 of sm90a, small enough for a sanitizer that makes kernels a
/// thousand times slower.
inline std::vector<MoeFfnCase> moe_ffn_small_cases() {
  using enum Popularity;
  using enum GluActivation;
  return {
      {"small: one token", 1, 8, 2, 256, 128, uniform, swiglu, true, true},
      {"small: 5 tokens, biases", 5, 16, 4, 384, 192, zipf, swiglu, true, true, 1, true},
      {"small: two tokens, whole groups of strips", 2, 4, 2, 512, 256, uniform, swiglu, false,
       true},
      {"small: 12 tokens", 12, 8, 2, 256, 64, uniform, geglu_tanh, false, true},
      {"small: 33 tokens", 33, 8, 3, 256, 128, zipf, swiglu, true, true},
      {"small: 70 tokens, weights on the input", 70, 4, 1, 256, 64, uniform, reglu, false, false, 3,
       false, true},
      {"small: 130 tokens of two experts", 130, 2, 1, 256, 128, uniform, swiglu, false, true},
      {"small: 240 tokens of two experts", 240, 2, 1, 256, 128, zipf, geglu_tanh},
      {"small: 520 tokens of two experts", 520, 2, 1, 256, 128, zipf, geglu_erf, false, false, 0,
       true},
      {"small: 900 tokens of two experts", 900, 2, 1, 256, 128, uniform, swiglu, false, true},
  };
}

}  // namespace switchyard::cases
