// SPDX-License-Identifier: Apache-2.0
// Rows of x multiplied by the weights of their picks, for models whose weights scale what an expert reads (Llama-4).
//
//   one block a pick, 8 columns a thread at a time; rows [T K, D] bf16, in the order of the routing's rows
//   cost  2 D bytes read (from L2 after the first pick of a token) and 2 D written a pick
#include "kernels/cuda/primitives.cuh"
#include "kernels/ops/moe_route.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 128, kColumns = 8;

__device__ __forceinline__ uint32_t weighed_pair(uint32_t pair, float weight) {
  return pack_bf16(low_bf16(pair) * weight, high_bf16(pair) * weight);
}

__global__ void __launch_bounds__(kThreads)
    weigh_rows(TokenRows from, DeviceRouting routing, WeighedRows to) {
  const int64_t pick = blockIdx.x;
  const int row = routing.pick_row[pick];
  if (threadIdx.x == 0) to.ones[pick] = row < 0 ? 0.0f : 1.0f;
  if (row < 0) return;
  if (threadIdx.x == 0) to.row_numbers[row] = row;
  const float weight = routing.weight[pick];
  const auto* x = reinterpret_cast<const uint4*>(static_cast<const bf16*>(from.x) +
                                                 pick / from.top_k * from.width);
  auto* out = reinterpret_cast<uint4*>(static_cast<bf16*>(to.rows) + row * from.width);
  for (int64_t i = threadIdx.x; i < from.width / kColumns; i += kThreads) {
    const uint4 value = x[i];
    out[i] = make_uint4(weighed_pair(value.x, weight), weighed_pair(value.y, weight),
                        weighed_pair(value.z, weight), weighed_pair(value.w, weight));
  }
}

}  // namespace
}  // namespace switchyard::cuda

namespace switchyard {

void weigh_rows_on_device(const TokenRows& from, const DeviceRouting& routing,
                          const WeighedRows& to, void* stream) noexcept {
  const auto picks = static_cast<unsigned>(from.tokens * from.top_k);
  if (picks == 0) return;
  cuda::weigh_rows<<<picks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(from, routing,
                                                                                    to);
}

}  // namespace switchyard
