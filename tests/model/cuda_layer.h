// SPDX-License-Identifier: Apache-2.0
// A small MoE block for tests of model/cuda/experts: weights on the host and on the device, and what the layer should give,
// in f64, for given picks.
#pragma once
#include <cstdint>
#include <vector>

#include "device/cuda.h"
#include "model/cuda/experts.h"

namespace switchyard::test {

template <class T>
std::vector<T> read_device(CudaStream& stream, const T* from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  stream.copy_out(values.data(), from, count * static_cast<int64_t>(sizeof(T)));
  stream.synchronize("read").value();
  return values;
}

/// Values on the device, followed by room that nobody may write: keep() copies them there.
template <class T>
class OnDevice {
 public:
  OnDevice(CudaStream& stream, const std::vector<T>& values)
      : memory_(
            CudaMemory::allocate(std::ssize(values) * int64_t{sizeof(T)} + 256, "a test").value()) {
    stream.copy_in(memory_.data(), values.data(), std::ssize(values) * int64_t{sizeof(T)});
    stream.synchronize("copy").value();
  }
  T* data() const { return memory_.as<T>(); }

 private:
  CudaMemory memory_;
};

class SmallBlock {
 public:
  static constexpr int64_t kWidth = 128, kFfn = 96;

  SmallBlock(CudaStream& stream, const RouterSpec& spec, DType dtype, uint32_t seed);

  /// Of the layout that the experts want.
  model::cuda::BlockWeights weights(CudaStream& stream, model::cuda::ExpertLayout layout);
  /// x [T, D] on the device in the block's precision.
  const void* input(CudaStream& stream, int64_t tokens);
  /// [T, D]: the sum of the picks' experts.
  std::vector<double> expected(const std::vector<int32_t>& expert, const std::vector<float>& weight,
                               int64_t tokens) const;

 private:
  std::vector<float> expert_output(const float* x, double scale, int expert) const;

  RouterSpec spec_;
  DType dtype_;
  std::vector<float> gate_, up_, down_, x_;  // [E, F, D], [E, F, D], [E, D, F], [T, D]
  std::vector<OnDevice<std::byte>> kept_;
  uint32_t seed_;
};

}  // namespace switchyard::test
