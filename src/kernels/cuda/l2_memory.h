// SPDX-License-Identifier: Apache-2.0
// Device memory whose pages are ordered by sides of the L2 (ops/l2_sides.h), so that the side of an address is known from its bits.
//
//   page   of 2 MiB. Inside of one the side is the parity of some bits, the same for all pages; the page itself may add one to it,
//          which no address shows. So it is measured, and pages are exchanged until those of even number start on side 0
//   costs  40 to 60 ms a GiB, most of it the driver's
// Source: measured on an H200; that pages can be ordered so is known from A. Demeure's cuda-side-boost.
#pragma once
#include <string_view>

#include "base/result.h"
#include "device/cuda.h"
#include "device/cuda_pages.h"
#include "kernels/ops/l2_sides.h"

namespace switchyard {

class L2Memory {
 public:
  /// Memory of the stream's device, uninitialised, aligned to two pages if it has sides and to 256 bytes if not. It has none where it is
  /// small, on devices other than Hopper, where they cannot be told apart (the log says why), or with SWITCHYARD_L2_SIDES=0. Errors: as
  /// CudaMemory::allocate.
  static Result<L2Memory> allocate(int64_t bytes, std::string_view purpose, CudaStream& stream);
  /// The same without sides in any case.
  static Result<L2Memory> allocate_plain(int64_t bytes, std::string_view purpose);

  std::byte* data() const noexcept { return sides_.mask != 0 ? pages_.data() : plain_.data(); }
  int64_t size() const noexcept { return size_; }
  const L2Sides& sides() const noexcept { return sides_; }

 private:
  CudaMemory plain_;
  CudaPages pages_;
  L2Sides sides_;
  int64_t size_ = 0;
};

}  // namespace switchyard
