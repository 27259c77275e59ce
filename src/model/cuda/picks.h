// SPDX-License-Identifier: Apache-2.0
// The choice of tokens on the device: a step's SampleSpecs go there in one copy (none when all rows are greedy and unchanged), and
// the kernels of kernels/cuda/step_sample.h leave one integer a row.
#pragma once
#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/step_sample.h"
#include "model/step.h"

namespace switchyard::model::cuda {

class Picks {
 public:
  static Result<Picks> create(int max_rows, CudaStream& device);

  /// Queues the choice for rows of `logits` into `pick`. False, and nothing is queued, when the lists of seen and masked tokens
  /// are longer than there is room for.
  bool queue(std::span<const SampleSpec> specs, float* logits, int64_t vocab, int32_t* pick,
             CudaStream& device);

 private:
  static constexpr int64_t kMostListed = 1 << 18;  // seen and masked tokens of a step

  PinnedMemory host_;
  CudaMemory device_, workspace_;
};

}  // namespace switchyard::model::cuda
