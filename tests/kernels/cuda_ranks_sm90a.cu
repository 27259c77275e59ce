// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/persistent_deal.cuh"
#include "kernels/cuda_ranks.h"

namespace switchyard::testing {
namespace {

using namespace cuda::persistent;

__global__ void claim_kernel(L2Sides sides, Events* events, int* rank, int* side) {
  rank[blockIdx.x] = claim_rank(sides, *events);
  side[blockIdx.x] = cuda::side_of_this_block(sides);
}

}  // namespace

void claim_ranks(const L2Sides& sides, int blocks, char* counts, int* rank, int* side) {
  claim_kernel<<<static_cast<unsigned>(blocks), 1>>>(sides, reinterpret_cast<Events*>(counts), rank,
                                                     side);
}

int64_t count_bytes() { return sizeof(Events); }

}  // namespace switchyard::testing
