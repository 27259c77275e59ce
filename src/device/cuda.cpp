// SPDX-License-Identifier: Apache-2.0
// CUDA devices, through the static runtime: the program starts without a driver and says what is
// missing.
#include <cuda_runtime_api.h>

#include "device/device.h"

namespace switchyard {

Result<std::vector<DeviceFacts>> cuda_devices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return fail(Code::unavailable, "CUDA: {} ({})", cudaGetErrorString(error),
                cudaGetErrorName(error));
  }
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      return fail(Code::device, "CUDA device {}: {}", i, cudaGetErrorString(error));
    }
    devices.push_back({properties.name, properties.major, properties.minor,
                       static_cast<int64_t>(properties.totalGlobalMem),
                       properties.multiProcessorCount});
  }
  return devices;
}

}  // namespace switchyard
