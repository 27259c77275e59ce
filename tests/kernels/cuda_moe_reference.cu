// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include "kernels/cuda_moe_reference.h"

namespace switchyard::testing {
namespace {

__device__ double value(const uint16_t* from, int64_t i) {
  return __uint_as_float(static_cast<uint32_t>(from[i]) << 16);
}

__device__ double activated(GluActivation activation, double gate) {
  switch (activation) {
    case GluActivation::swiglu:
      return gate / (1 + exp(-gate));
    case GluActivation::geglu_tanh:
      return 0.5 * gate * (1 + tanh(sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
    case GluActivation::geglu_erf:
      return 0.5 * gate * (1 + erf(gate / sqrt(2.0)));
    case GluActivation::reglu:
      return gate > 0 ? gate : 0;
  }
  return 0;
}

__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// The sum of four uniform values has nearly the shape of a normal one.
__global__ void normals(uint16_t* to, int64_t count, float deviation, unsigned seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t low =
      mixed(static_cast<uint32_t>(i) ^ mixed(seed + static_cast<uint32_t>(i >> 32)));
  const uint32_t high = mixed(low + 0x9e3779b9u);
  const float sum =
      static_cast<float>((low & 0xffff) + (low >> 16) + (high & 0xffff) + (high >> 16));
  const float normal = (sum / 65536.0f - 2.0f) * 1.7320508f;
  to[i] = __bfloat16_as_ushort(__float2bfloat16(normal * deviation));
}

// One thread a (pick, hidden column).
__global__ void hidden_of_picks(MoeFfn::Problem problem, MoeFfn::Args args, PlainExperts experts,
                                double* hidden) {
  const int64_t width = problem.width, ffn = problem.ffn_width;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pick = i / ffn, f = i % ffn;
  if (pick >= args.tokens * problem.rule.top_k) return;
  const int expert = args.routing.expert[pick];
  if (expert < 0) return;
  const auto* x = static_cast<const uint16_t*>(args.x) + pick / problem.rule.top_k * width;
  const double inside = problem.weight_on_input ? args.routing.weight[pick] : 1;
  double gate = 0, up = 0;
  for (int64_t k = 0; k < width; ++k) {
    gate += inside * value(x, k) * value(experts.gate, (expert * ffn + f) * width + k);
    up += inside * value(x, k) * value(experts.up, (expert * ffn + f) * width + k);
  }
  if (args.up_bias != nullptr) {
    gate += args.up_bias[expert * 2 * ffn + f];
    up += args.up_bias[(expert * 2 + 1) * ffn + f];
  }
  hidden[i] = activated(problem.activation, gate) * up;
}

// One thread a (token, output column).
__global__ void combined_outputs(MoeFfn::Problem problem, MoeFfn::Args args, PlainExperts experts,
                                 const double* hidden, double* y) {
  const int64_t width = problem.width, ffn = problem.ffn_width;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t t = i / width, d = i % width;
  if (t >= args.tokens) return;
  double sum = 0;
  for (int k = 0; k < problem.rule.top_k; ++k) {
    const int64_t pick = t * problem.rule.top_k + k;
    const int expert = args.routing.expert[pick];
    if (expert < 0) continue;
    double product = args.down_bias != nullptr ? args.down_bias[expert * width + d] : 0;
    for (int64_t f = 0; f < ffn; ++f) {
      product += hidden[pick * ffn + f] * value(experts.down, (expert * width + d) * ffn + f);
    }
    sum += (problem.weight_on_input ? 1 : args.routing.weight[pick]) * product;
  }
  if (args.shared != nullptr) {
    const double weight = args.shared_weight != nullptr ? args.shared_weight[t] : 1;
    sum += weight * args.shared[i];
  }
  y[i] += args.scale * sum;
}

unsigned blocks(int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

}  // namespace

void fill_normals(uint16_t* to, int64_t count, double deviation, unsigned seed) {
  if (count == 0) return;
  normals<<<blocks(count), 256>>>(to, count, static_cast<float>(deviation), seed);
}

void reference_moe_ffn(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                       const PlainExperts& experts, double* hidden, double* y) {
  if (args.tokens == 0) return;
  const int64_t picks = args.tokens * problem.rule.top_k;
  hidden_of_picks<<<blocks(picks * problem.ffn_width), 256>>>(problem, args, experts, hidden);
  combined_outputs<<<blocks(args.tokens * problem.width), 256>>>(problem, args, experts, hidden, y);
}

}  // namespace switchyard::testing
