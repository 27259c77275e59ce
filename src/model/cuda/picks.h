// SPDX-License-Identifier: Apache-2.0
// The choice of tokens on the device: a step's SampleSpecs become rows that travel with its arrays, tokens that were seen or are
// masked go in a copy of their own, and the kernels of kernels/cuda/step_sample.h leave one integer a row.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/step_sample.h"
#include "model/step.h"

namespace switchyard::model::cuda {

class Picks {
 public:
  /// What the rows of a step ask for.
  struct Asked {
    bool picks = false;    ///< tokens, and the lists fit
    bool draws = false;    ///< some row has a temperature
    bool adjusts = false;  ///< some row has seen or masked tokens
  };

  static Result<Picks> create(int max_rows, CudaStream& device);

  /// Keeps the rows, and the lists for the next queue().
  Asked pack(std::span<const SampleSpec> specs);
  /// What was packed last.
  std::span<const switchyard::cuda::SampleRow> rows() const noexcept { return rows_; }
  /// Queues the choice for `count` rows of `logits` into `pick`; rows() lie at `on_device`, which is read only where the step draws or
  /// adjusts.
  void queue(const Asked& asked, int count, const switchyard::cuda::SampleRow* on_device,
             float* logits, int64_t vocab, int32_t* pick, CudaStream& device);

 private:
  static constexpr int64_t kMostListed = 1 << 18;  // seen and masked tokens of a step

  std::vector<switchyard::cuda::SampleRow> rows_;
  int64_t num_seen_ = 0, num_masked_ = 0;
  PinnedMemory host_;
  CudaMemory device_, workspace_;
};

}  // namespace switchyard::model::cuda
