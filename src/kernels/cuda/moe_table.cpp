// SPDX-License-Identifier: Apache-2.0
// The device entries of MoeFfn, best first; the last one suits every number of tokens.
#include "kernels/cuda/moe_entries.h"

namespace switchyard {

std::span<const MoeFfn::Kernel> moe_ffn_kernels() noexcept {
  static const MoeFfn::Kernel kTable[] = {
      cuda::kMoeFfnSm90aSmall,
      cuda::kMoeFfnSm90a,
      cuda::kMoeFfnSm80,
  };
  return kTable;
}

}  // namespace switchyard
