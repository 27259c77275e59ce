// SPDX-License-Identifier: Apache-2.0
// What a CUDA device can do at most, measured: reading its memory, and a large dense product.
#pragma once
#include <string>

#include "base/result.h"
#include "device/cuda.h"
#include "device/device.h"

namespace switchyard::cli {

struct CudaCeilings {
  double read_gbps = 0;      ///< 4 GiB, each byte once
  double matmul_gflops = 0;  ///< 8192^3 in bf16 by cuBLASLt, a short burst; 0 without the library
};

/// With an empty path: measures. Else reads the file, or measures and writes it when there is none.
Result<CudaCeilings> load_cuda_ceilings(const std::string& path, const DeviceFacts& facts,
                                        CudaStream& stream);

}  // namespace switchyard::cli
