// SPDX-License-Identifier: Apache-2.0
// Experts for exact comparison: one warp for one value, no sorting. Every pick reads its expert's weights anew, so the cost
// is T K times the bytes of an expert: for f32 runs of small models and for problems that the fast kernels refuse.
// Source: Shazeer 2020, arXiv 2002.05202.
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_math.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 8;

// h[t, k, f] = silu(gate . x) * (up . x); picks of -1 have none
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) up_kernel(PlainMoe a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t f = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp, pick = blockIdx.x;
  if (f >= a.ffn_width || a.expert[pick] < 0) return;
  const float weight = a.weight_on_input ? a.weight[pick] : 1.0f;
  const T* x = static_cast<const T*>(a.x) + pick / a.top_k * a.width;
  const T* gate =
      static_cast<const T*>(a.gate_up) + (int64_t{a.expert[pick]} * 2 * a.ffn_width + f) * a.width;
  const T* up = gate + a.ffn_width * a.width;
  float g = 0, u = 0;
  for (int64_t i = lane; i < a.width; i += kWarp) {
    const float value = weight * to_f32(x[i]);
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
  const int64_t d = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp, t = blockIdx.x;
  if (d >= a.width) return;
  float sum = 0;
  for (int k = 0; k < a.top_k; ++k) {
    const int64_t pick = t * a.top_k + k;
    if (a.expert[pick] < 0) continue;
    const T* down =
        static_cast<const T*>(a.down) + (int64_t{a.expert[pick]} * a.width + d) * a.ffn_width;
    const float* h = a.h + pick * a.ffn_width;
    float part = 0;
    for (int64_t i = lane; i < a.ffn_width; i += kWarp) part += to_f32(down[i]) * h[i];
    sum += (a.weight_on_input ? 1.0f : a.weight[pick]) * warp_sum(part);
  }
  if (lane == 0) a.y[t * a.width + d] += a.scale * sum;
}

}  // namespace

void moe_plain(const PlainMoe& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  const auto tokens = static_cast<unsigned>(args.tokens);
  const auto blocks = [](int64_t n) { return static_cast<unsigned>((n + kWarps - 1) / kWarps); };
  const bool wide = args.dtype == DType::f32;
  const dim3 up(tokens * static_cast<unsigned>(args.top_k), blocks(args.ffn_width));
  (wide ? up_kernel<float> : up_kernel<bf16>)<<<up, kWarps * kWarp, 0, stream>>>(args);
  const dim3 down(tokens, blocks(args.width));
  (wide ? down_kernel<float> : down_kernel<bf16>)<<<down, kWarps * kWarp, 0, stream>>>(args);
}

}  // namespace switchyard::cuda
