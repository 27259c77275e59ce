// SPDX-License-Identifier: Apache-2.0
// CUDA devices, through the static runtime: the program starts without a driver and says what is
// missing.
#include <cuda_runtime_api.h>

#include "device/device.h"

namespace switchyard {

Result<std::vector<DeviceFacts>> cuda_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice) return std::vector<DeviceFacts>{};
  if (counted != cudaSuccess) {
    return fail(Code::unavailable,
                "CUDA: no usable driver: {} ({}); install an NVIDIA driver for CUDA {}.{} or newer",
                cudaGetErrorString(counted), cudaGetErrorName(counted), CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10);
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
