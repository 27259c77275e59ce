// SPDX-License-Identifier: Apache-2.0
// Built in place of the device code where no CUDA toolkit was found or wanted: there are no entries, and so nobody may
// run the rest.
#include "base/check.h"
#include "kernels/ops/moe_ffn.h"

namespace switchyard {

std::span<const MoeFfn::Kernel> moe_ffn_kernels() noexcept { return {}; }

void MoeRoute::run(const Problem&, const Args&, void*) noexcept {
  SWITCHYARD_UNREACHABLE("device routing in a build without CUDA");
}
void weigh_rows_on_device(const TokenRows&, const DeviceRouting&, const WeighedRows&,
                          void*) noexcept {
  SWITCHYARD_UNREACHABLE("device routing in a build without CUDA");
}
void moe_pack_w13_on_device(const void*, const void*, int64_t, int64_t, void*, void*) noexcept {
  SWITCHYARD_UNREACHABLE("device packing in a build without CUDA");
}
void moe_pack_w2_on_device(const void*, int64_t, int64_t, void*, void*) noexcept {
  SWITCHYARD_UNREACHABLE("device packing in a build without CUDA");
}
void moe_place_on_device(void*, int64_t, int64_t, int64_t, const L2Sides&, void*, void*) noexcept {
  SWITCHYARD_UNREACHABLE("device packing in a build without CUDA");
}

}  // namespace switchyard
