// SPDX-License-Identifier: Apache-2.0
// Dense products of many tokens by cuBLASLt, which is loaded when the first model is put on a device: the library has
// 540 MB, so it is neither linked nor needed to start the program. Without it, dense_plain does the work, slowly.
#pragma once
#include <memory>
#include <string>

#include "kernels/cuda/step.h"

namespace switchyard::cuda {

class DenseLibrary {
 public:
  /// Null, with the reason in `why_not`, when the library or the device cannot be used.
  static std::unique_ptr<DenseLibrary> open(std::string& why_not);
  virtual ~DenseLibrary() = default;

  /// y = alpha * x W^T + bias (or += that), f32 sums without TF32; or y_bf16, without bias, if that is where it goes. The algorithm of a
  /// shape is chosen at its first use. False when the library has none for it.
  virtual bool run(const Dense& args, StreamHandle stream) noexcept = 0;
};

}  // namespace switchyard::cuda
