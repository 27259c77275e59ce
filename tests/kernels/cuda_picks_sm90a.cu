// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/persistent_gate.cuh"
#include "kernels/cuda_picks.h"

namespace switchyard::testing {
namespace {

using namespace cuda::persistent;

__global__ void __launch_bounds__(kConsumerThreads)
    pick_kernel(RouteRule rule, const float* logits, uint64_t* tallies, int* picks, int* usable) {
  __shared__ Candidates candidates;
  __shared__ float brought[kMaxGateExperts];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rule.experts) add_to_tally(tallies + tally_at(thread), logits[thread]);
  __syncthreads();
  bool good = true;
  if (thread < (rule.experts + 31) / 32 * 32) {
    good = bring_logits(tallies, rule, thread, brought, candidates);
  }
  good = consumers_agree(good);
  const Pick pick = pick_of(rule, candidates, good, thread);
  if (pick.rank < rule.top_k) picks[pick.rank] = pick.expert;
  if (thread == 0) *usable = good;
}

}  // namespace

void pick_from_tallies(const RouteRule& rule, const float* logits, uint64_t* tallies, int* picks,
                       int* usable) {
  pick_kernel<<<1, kConsumerThreads>>>(rule, logits, tallies, picks, usable);
}

int64_t tally_words() { return kTallyBytes / 8; }

}  // namespace switchyard::testing
