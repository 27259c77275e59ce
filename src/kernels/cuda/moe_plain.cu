// SPDX-License-Identifier: Apache-2.0
// Experts for exact comparison: one warp for one value, no sorting. Every pick reads its expert's weights anew, so the cost
// is T K times the bytes of an expert: for f32 runs of small models and for problems that the fast kernels refuse.
// Source: Shazeer et al. 2017, arXiv 1701.06538 (routing); Shazeer 2020, arXiv 2002.05202.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 8;

// Whether a row of logits can be scored: no NaN, and something finite.
__device__ bool usable(const float* logits, int count) {
  float highest = -INFINITY;
  bool nan = false;
  for (int e = threadIdx.x; e < count; e += kWarp) {
    nan |= isnan(logits[e]);
    highest = fmaxf(highest, logits[e]);
  }
  return !__any_sync(kAllLanes, nan) && isfinite(warp_max(highest));
}

__device__ float exp_sum(const float* logits, int count, float highest) {
  float sum = 0;
  for (int e = threadIdx.x; e < count; e += kWarp) sum += expf(logits[e] - highest);
  return warp_sum(sum);
}

// The best expert after (value, index) in falling order, ties to the lower index.
__device__ int next_best(const float* logits, int count, float value, int index) {
  float best = -INFINITY;
  int at = count;
  for (int e = threadIdx.x; e < count; e += kWarp) {
    const float v = logits[e];
    const bool after = v < value || (v == value && e > index);
    if (after && (at == count || v > best)) {
      best = v;
      at = e;
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const float other = __shfl_xor_sync(kAllLanes, best, offset);
    const int other_at = __shfl_xor_sync(kAllLanes, at, offset);
    if (other_at < count && (at == count || other > best || (other == best && other_at < at))) {
      best = other;
      at = other_at;
    }
  }
  return at;
}

// One warp for one token.
__global__ void route_kernel(PlainMoe a) {
  const int64_t t = blockIdx.x;
  const float* logits = a.logits + t * a.num_experts;
  int32_t* expert = a.expert + t * a.top_k;
  float* weight = a.weight + t * a.top_k;
  if (!usable(logits, a.num_experts)) {
    for (int k = threadIdx.x; k < a.top_k; k += kWarp) {
      expert[k] = k;
      weight[k] = 0;
    }
    return;
  }
  float highest = 0, value = INFINITY, picked = 0;
  int index = -1;
  for (int k = 0; k < a.top_k; ++k) {
    index = next_best(logits, a.num_experts, value, index);
    value = logits[index];
    if (k == 0) highest = value;
    const float score = expf(value - highest);
    picked += score;
    if (threadIdx.x == 0) {
      expert[k] = index;
      weight[k] = score;
    }
  }
  float divisor = picked;
  if (a.weigh == PlainMoe::Weigh::raw || a.renormalize_epsilon != 0) {
    const float all = exp_sum(logits, a.num_experts, highest);
    divisor = a.weigh == PlainMoe::Weigh::raw ? all : all * (picked / all + a.renormalize_epsilon);
  }
  __syncwarp();
  for (int k = threadIdx.x; k < a.top_k; k += kWarp)
    weight[k] = weight[k] / divisor * a.routed_scale;
}

// h[t, k, f] = silu(gate . x) * (up . x)
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) up_kernel(PlainMoe a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t f = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, pick = blockIdx.y;
  if (f >= a.ffn_width) return;
  const T* x = static_cast<const T*>(a.x) + pick / a.top_k * a.width;
  const T* gate =
      static_cast<const T*>(a.gate_up) + (int64_t{a.expert[pick]} * 2 * a.ffn_width + f) * a.width;
  const T* up = gate + a.ffn_width * a.width;
  float g = 0, u = 0;
  for (int64_t i = lane; i < a.width; i += kWarp) {
    const float value = to_f32(x[i]);
    g += to_f32(gate[i]) * value;
    u += to_f32(up[i]) * value;
  }
  g = warp_sum(g);
  u = warp_sum(u);
  if (lane == 0) a.h[pick * a.ffn_width + f] = g / (1.0f + expf(-g)) * u;
}

// y[t, d] += scale * sum over k of weight * down . h
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) down_kernel(PlainMoe a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t d = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, t = blockIdx.y;
  if (d >= a.width) return;
  float sum = 0;
  for (int k = 0; k < a.top_k; ++k) {
    const int64_t pick = t * a.top_k + k;
    const T* down =
        static_cast<const T*>(a.down) + (int64_t{a.expert[pick]} * a.width + d) * a.ffn_width;
    const float* h = a.h + pick * a.ffn_width;
    float part = 0;
    for (int64_t i = lane; i < a.ffn_width; i += kWarp) part += to_f32(down[i]) * h[i];
    sum += a.weight[pick] * warp_sum(part);
  }
  if (lane == 0) a.y[t * a.width + d] += a.scale * sum;
}

}  // namespace

void moe_plain(const PlainMoe& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const auto tokens = static_cast<unsigned>(args.tokens);
  const auto blocks = [](int64_t n) { return static_cast<unsigned>((n + kWarps - 1) / kWarps); };
  const bool wide = args.dtype == DType::f32;
  route_kernel<<<tokens, kWarp, 0, stream>>>(args);
  const dim3 up(blocks(args.ffn_width), tokens * static_cast<unsigned>(args.top_k));
  (wide ? up_kernel<float> : up_kernel<bf16>)<<<up, kWarps * kWarp, 0, stream>>>(args);
  const dim3 down(blocks(args.width), tokens);
  (wide ? down_kernel<float> : down_kernel<bf16>)<<<down, kWarps * kWarp, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
