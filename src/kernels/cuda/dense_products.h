// SPDX-License-Identifier: Apache-2.0
// Which dense product runs: the skinny kernel for few tokens, cuBLASLt for many, the plain kernel where neither can.
#pragma once
#include <memory>
#include <string>

#include "kernels/cuda/dense_library.h"

namespace switchyard::cuda {

class DenseProducts {
 public:
  /// With `deterministic`, a token's bits do not depend on how many there are: no library, the skinny kernel in turns.
  /// `note` says what is missing, if anything.
  static DenseProducts open(bool deterministic, std::string& note);

  void run(const Dense& args, StreamHandle stream) noexcept;

 private:
  bool deterministic_ = false;
  std::unique_ptr<DenseLibrary> library_;
};

}  // namespace switchyard::cuda
