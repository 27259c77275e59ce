// SPDX-License-Identifier: Apache-2.0
// Stream: ordered work on one device. On the CPU it is a compute pool plus the tracer that times its zones; work is
// done when the call returns. Errors of launches are read once per step; one that the device meets later shows when the
// step's result does not come.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "base/trace.h"
#include "tensor/view.h"

namespace switchyard {

class Stream {
 public:
  Stream(DeviceId device, Pool& pool, Tracer* tracer = nullptr) noexcept
      : device_(device), pool_(&pool), tracer_(tracer) {}

  DeviceId device() const noexcept { return device_; }
  Pool& pool() const noexcept { return *pool_; }
  Tracer* tracer() const noexcept { return tracer_; }

 private:
  DeviceId device_;
  Pool* pool_;
  Tracer* tracer_;
};

/// An accelerator as `switchyard doctor` shows it.
struct DeviceFacts {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int64_t memory_bytes = 0;
  int num_multiprocessors = 0;
};

/// CUDA devices of this machine. Errors: Code::unavailable when built without CUDA, or without a driver.
Result<std::vector<DeviceFacts>> cuda_devices();

}  // namespace switchyard
