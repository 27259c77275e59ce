// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "kernels/cuda/moe_entries.h"

namespace switchyard {

std::span<const MoeFfn::Kernel> moe_ffn_kernels() noexcept {
  static const std::array kernels = {cuda::kMoeFfnSm90aSmall, cuda::kMoeFfnSm80};
  return kernels;
}

}  // namespace switchyard
