// SPDX-License-Identifier: Apache-2.0
// What attention over the paged cache means: all scores of a token, one softmax, one weighted sum, in f64.
#include "kernels/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/entries.h"
#include "tensor/float_types.h"

namespace switchyard::ref {
namespace {

double wide(float value) { return static_cast<double>(value); }

double load(const void* cache, DType dtype, int64_t at) {
  if (dtype == DType::f32) return wide(static_cast<const float*>(cache)[at]);
  return wide(to_float(static_cast<const Bf16*>(cache)[at]));
}

// Where the keys and values of one head and one cached position begin.
struct Place {
  int64_t base, offset;
};
Place place_of(const Attention::Problem& p, const int32_t* table, int64_t position, int64_t g) {
  const int64_t block = table[position / p.block_tokens];
  return {(block * p.kv_heads + g) * p.block_tokens * p.head_dim, position % p.block_tokens};
}

void attend(const Attention::Problem& p, const Attention::Args& args, const int32_t* table,
            int64_t position, int64_t token, int64_t head) {
  const int64_t g = head / (p.heads / p.kv_heads), width = p.head_dim;
  const float* q = args.q + (token * p.heads + head) * width;
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, position - p.window + 1) : 0;
  std::vector<double> score(position + 1 - first), out(width, 0);
  for (int64_t j = first; j <= position; ++j) {
    const Place at = place_of(p, table, j, g);
    double sum = 0;
    for (int64_t z = 0; z < width; ++z) {
      sum += wide(q[z]) * load(args.k_cache, p.cache, at.base + z * p.block_tokens + at.offset);
    }
    score[j - first] = sum * wide(p.scale);
  }
  const double highest = *std::max_element(score.begin(), score.end());
  double total = 0;
  for (double& s : score) total += s = std::exp(s - highest);
  for (int64_t j = first; j <= position; ++j) {
    const Place at = place_of(p, table, j, g);
    for (int64_t z = 0; z < width; ++z) {
      out[z] += score[j - first] * load(args.v_cache, p.cache, at.base + at.offset * width + z);
    }
  }
  float* to = args.out + (token * p.heads + head) * width;
  for (int64_t z = 0; z < width; ++z) to[z] = static_cast<float>(out[z] / total);
}

}  // namespace

void attention(const Attention::Problem& p, const Attention::Args& args, std::span<std::byte>,
               const Stream&) noexcept {
  for (int b = 0; b < args.sequences; ++b) {
    const int32_t* table = args.block_table + int64_t{b} * args.max_blocks;
    for (int64_t t = args.seq_offset[b]; t < args.seq_offset[b + 1]; ++t) {
      const int64_t position = args.context_len[b] + t - args.seq_offset[b];
      for (int64_t h = 0; h < p.heads; ++h) attend(p, args, table, position, t, h);
    }
  }
}

}  // namespace switchyard::ref
