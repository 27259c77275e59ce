// SPDX-License-Identifier: Apache-2.0
// The read bandwidth of a CUDA device: the best of a few passes over more memory than its L2 holds.
#include <algorithm>

#include "device/cuda.h"
#include "kernels/cuda/moe_baseline.h"
#include "model/devices.h"

namespace switchyard::model {

Result<double> measure_cuda_read_gbps(int index, Pool&) {
  constexpr int64_t kBytes = int64_t{4} << 30;  // a pass takes long beside its launch
  constexpr int kPasses = 8;
  SWITCHYARD_ASSIGN(CudaStream stream, CudaStream::open(index));
  SWITCHYARD_ASSIGN(const CudaMemory memory, CudaMemory::allocate(kBytes + 4, "a measurement"));
  SWITCHYARD_ASSIGN(const CudaEvent start, CudaEvent::create());
  SWITCHYARD_ASSIGN(const CudaEvent end, CudaEvent::create());
  stream.fill(memory.data(), 1, kBytes + 4);
  double best_ms = 0;
  for (int i = 0; i < kPasses; ++i) {
    stream.record(start);
    cuda::read_memory(memory.data(), kBytes, memory.as<uint32_t>() + kBytes / 4, stream.handle());
    stream.record(end);
    SWITCHYARD_TRY(stream.synchronize("measure the read bandwidth"));
    SWITCHYARD_ASSIGN(const double ms, end.ms_since(start));
    best_ms = i == 0 ? ms : std::min(best_ms, ms);
  }
  return static_cast<double>(kBytes) / best_ms * 1e-6;
}

}  // namespace switchyard::model
