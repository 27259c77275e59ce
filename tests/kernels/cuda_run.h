// SPDX-License-Identifier: Apache-2.0
// Host arrays of an operation's arguments to the device and back, so that the cases of the CPU kernels run on CUDA too.
#pragma once
#include <vector>

#include <gtest/gtest.h>

#include "device/cuda.h"
#include "device/device.h"
#include "kernels/cuda/step.h"
#include "tensor/float_types.h"

namespace switchyard::cases {

/// The device's stream, or null on a machine without one (the reason is printed once).
inline CudaStream* cuda_stream() {
  static Result<CudaStream> stream = CudaStream::open(0);
  return stream.ok() ? &*stream : nullptr;
}

#define SWITCHYARD_SKIP_WITHOUT_CUDA() \
  if (cases::cuda_stream() == nullptr) GTEST_SKIP() << CudaStream::open(0).error().message

inline void synchronize() {
  const Status status = cuda_stream()->synchronize("test");
  ASSERT_TRUE(status.ok()) << status.error().message;
}

/// A device copy of a host array.
class OnDevice {
 public:
  OnDevice(const void* host, int64_t bytes)
      : memory_(CudaMemory::allocate(bytes, "a test").value()) {
    if (host != nullptr) cuda_stream()->copy_in(memory_.data(), host, bytes);
    if (host == nullptr) cuda_stream()->fill(memory_.data(), 0xFF, bytes);  // NaN
    synchronize();
  }
  template <class T>
  explicit OnDevice(const std::vector<T>& host)
      : OnDevice(host.data(), std::ssize(host) * static_cast<int64_t>(sizeof(T))) {}

  template <class T>
  T* as() const {
    return memory_.as<T>();
  }
  void* data() const { return memory_.data(); }
  template <class T>
  std::vector<T> read(int64_t count) const {
    std::vector<T> host(static_cast<size_t>(count));
    cuda_stream()->copy_out(host.data(), memory_.data(), count * static_cast<int64_t>(sizeof(T)));
    synchronize();
    return host;
  }
  /// As f32, whatever it is.
  std::vector<float> read_floats(int64_t count, DType dtype) const {
    if (dtype == DType::f32) return read<float>(count);
    std::vector<float> wide;
    for (const Bf16 value : read<Bf16>(count)) wide.push_back(to_float(value));
    return wide;
  }

 private:
  CudaMemory memory_;
};

/// Rows in the precision of a run.
inline OnDevice on_device(const std::vector<float>& values, DType dtype) {
  if (dtype == DType::f32) return OnDevice(values);
  std::vector<Bf16> narrow;
  for (const float value : values) narrow.push_back(to_bf16(value));
  return OnDevice(narrow);
}

}  // namespace switchyard::cases
