// SPDX-License-Identifier: Apache-2.0
// What the RMS norm and the preparation of q, k, v mean: plain loops, sums in f64.
#include "kernels/ops/norm_rope_act.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/entries.h"
#include "tensor/float_types.h"

namespace switchyard::ref {
namespace {

double wide(float value) { return static_cast<double>(value); }

double rms_scale(const float* x, int64_t width, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += wide(x[i]) * wide(x[i]);
  return 1 / std::sqrt(sum / static_cast<double>(width) + wide(eps));
}

void normalize(float* x, int64_t width, float eps, const float* weight) {
  const double scale = rms_scale(x, width, eps);
  for (int64_t i = 0; i < width; ++i) {
    x[i] = static_cast<float>(wide(x[i]) * scale * wide(weight[i]));
  }
}

// The norm of `heads` heads that stand side by side in x.
void normalize_heads(const PrepareQkv::Problem& p, float* x, int heads, const float* weight) {
  if (p.norm == QkNorm::full_width) normalize(x, int64_t{heads} * p.head_dim, p.eps, weight);
  for (int h = 0; p.norm == QkNorm::per_head && h < heads; ++h) {
    normalize(x + int64_t{h} * p.head_dim, p.head_dim, p.eps, weight);
  }
}

void rotate(const PrepareQkv::Problem& p, float* head, const float* cos, const float* sin) {
  const int half = p.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double a = wide(head[i]), b = wide(head[i + half]);
    head[i] = static_cast<float>(a * wide(cos[i]) - b * wide(sin[i]));
    head[i + half] = static_cast<float>(b * wide(cos[i]) + a * wide(sin[i]));
  }
}

void store(void* cache, DType dtype, int64_t at, float value) {
  if (dtype == DType::f32) {
    static_cast<float*>(cache)[at] = value;
  } else {
    static_cast<Bf16*>(cache)[at] = to_bf16(value);
  }
}

// One token's keys (transposed) and values into their slot.
void store_kv(const PrepareQkv::Problem& p, const PrepareQkv::Args& args, int64_t slot,
              const float* k, const float* v) {
  const int64_t block = slot / p.block_tokens, offset = slot % p.block_tokens;
  for (int64_t g = 0; g < p.kv_heads; ++g) {
    const int64_t base = (block * p.kv_heads + g) * p.block_tokens * p.head_dim;
    for (int64_t z = 0; z < p.head_dim; ++z) {
      store(args.k_cache, p.cache, base + z * p.block_tokens + offset, k[g * p.head_dim + z]);
      store(args.v_cache, p.cache, base + offset * p.head_dim + z, v[g * p.head_dim + z]);
    }
  }
}

}  // namespace

void rms_norm(const RmsNorm::Problem& problem, const RmsNorm::Args& args, std::span<std::byte>,
              const Stream&) noexcept {
  const int64_t width = problem.width;
  for (int64_t t = 0; t < args.tokens; ++t) {
    float* x = args.x + t * width;
    for (int64_t i = 0; args.add != nullptr && i < width; ++i) {
      x[i] += args.add_scale * args.add[t * width + i];
    }
    if (args.y == nullptr) continue;
    std::copy_n(x, width, args.y + t * width);
    normalize(args.y + t * width, width, problem.eps, args.weight);
  }
}

void prepare_qkv(const PrepareQkv::Problem& p, const PrepareQkv::Args& args, std::span<std::byte>,
                 const Stream&) noexcept {
  const int64_t q_width = int64_t{p.heads} * p.head_dim,
                kv_width = int64_t{p.kv_heads} * p.head_dim;
  std::vector<float> row(q_width + 2 * kv_width);
  float *q = row.data(), *k = q + q_width, *v = k + kv_width;
  for (int64_t t = 0; t < args.tokens; ++t) {
    std::copy_n(args.qkv + t * std::ssize(row), row.size(), row.data());
    normalize_heads(p, q, p.heads, args.q_norm);
    normalize_heads(p, k, p.kv_heads, args.k_norm);
    for (float& value : row) {
      if (p.clip > 0) value = std::clamp(value, -p.clip, p.clip);
    }
    for (int h = 0; h < p.heads + p.kv_heads; ++h) {
      const int64_t half = p.rotary_dim / 2;
      rotate(p, q + int64_t{h} * p.head_dim, args.cos + t * half, args.sin + t * half);
    }
    std::copy_n(q, q_width, args.q + t * q_width);
    store_kv(p, args, args.slot[t], k, v);
  }
}

}  // namespace switchyard::ref
