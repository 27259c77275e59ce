// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/l2_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "device/device.h"
#include "kernels/cuda/l2_probe.h"

namespace switchyard {
namespace {

constexpr int64_t kLeastBytes = 256 << 20;  // what fits into the L2 gains nothing
constexpr int64_t kPageBytes = CudaPages::kPageBytes;

Error unclear(const char* what) {
  return fail(Code::unavailable, "CUDA: the sides of the L2 cannot be told apart: {}", what);
}

// Measures where pages lie.
class Surveyor {
 public:
  Surveyor(CudaPages& pages, int multiprocessors, CudaStream& stream)
      : pages_(pages), multiprocessors_(multiprocessors), stream_(stream) {}

  /// The side of each multiprocessor, and the bits of an address inside a page. Side 0 is the first multiprocessor's.
  Result<L2Sides> sides() {
    SWITCHYARD_TRY(measure_multiprocessors());
    constexpr int64_t kChunks = kPageBytes / L2Sides::kChunkBytes;
    constexpr int64_t kLastWord = L2Sides::kChunkBytes - 4;
    std::vector<int64_t> offsets(2 * kChunks);
    for (int64_t i = 0; i < kChunks; ++i) {
      offsets[i] = i * L2Sides::kChunkBytes;
      offsets[kChunks + i] = offsets[i] + kLastWord;
    }
    SWITCHYARD_ASSIGN(const std::vector<uint8_t> found, sides_of(offsets));
    if (!std::equal(found.begin(), found.begin() + kChunks, found.begin() + kChunks)) {
      return unclear("chunks of 4 KiB have two of them");
    }
    sides_.mask = l2_page_mask(std::span(found).first(kChunks));
    if (sides_.mask == 0) return unclear("they do not follow from bits of the address");
    sides_.mask |= static_cast<uint32_t>(kPageBytes);
    return sides_;
  }

  /// Puts pages that start on side 0 at even places, as far as there are as many of each.
  Status order_pages() {
    std::vector<int64_t> starts(pages_.num_pages());
    for (int64_t i = 0; i < std::ssize(starts); ++i) starts[i] = i * kPageBytes;
    SWITCHYARD_ASSIGN(const std::vector<uint8_t> found, sides_of(starts));
    std::vector<int64_t> wrong[2];  // even places with side 1, odd places with side 0
    for (int64_t i = 0; i < std::ssize(found); ++i) {
      if (found[i] != i % 2) wrong[i % 2].push_back(i);
    }
    const size_t pairs = std::min(wrong[0].size(), wrong[1].size());
    for (size_t i = 0; i < pairs; ++i) SWITCHYARD_TRY(pages_.exchange(wrong[0][i], wrong[1][i]));
    return {};
  }

 private:
  Status measure_multiprocessors() {
    std::vector<int32_t> cycles(L2Sides::kMost, -1), found;
    constexpr int64_t kBytes = L2Sides::kMost * int64_t{sizeof(int32_t)};
    SWITCHYARD_ASSIGN(const CudaMemory to, CudaMemory::allocate(kBytes, "distances"));
    stream_.copy_in(to.data(), cycles.data(), kBytes);
    cuda::l2_cycles_by_multiprocessor(pages_.data(), multiprocessors_, to.as<int32_t>(),
                                      stream_.handle());
    stream_.copy_out(cycles.data(), to.data(), kBytes);
    SWITCHYARD_TRY(stream_.synchronize("measure multiprocessors"));
    std::ranges::copy_if(cycles, std::back_inserter(found), [](int32_t each) { return each >= 0; });
    if (std::ssize(found) != multiprocessors_) return unclear("some multiprocessors took no part");
    far_cycles_ = l2_far_cycles(found);
    if (far_cycles_ == 0) {
      const auto [least, most] = std::ranges::minmax(found);
      return fail(Code::unavailable,
                  "CUDA: all multiprocessors are alike far from the L2: {} to {} cycles", least,
                  most);
    }
    const bool first = found[0] >= far_cycles_;
    for (int i = 0; i < L2Sides::kMost; ++i) {
      const bool other = cycles[i] >= 0 && (cycles[i] >= far_cycles_) != first;
      sides_.near[i / 32] |= uint32_t{other} << i % 32;
    }
    return {};
  }

  Result<std::vector<uint8_t>> sides_of(const std::vector<int64_t>& offsets) {
    const int64_t count = std::ssize(offsets), bytes = count * int64_t{sizeof(int64_t)};
    static_assert(sizeof(cuda::L2Distance) == sizeof(int64_t));
    SWITCHYARD_ASSIGN(const CudaMemory from, CudaMemory::allocate(bytes, "offsets"));
    SWITCHYARD_ASSIGN(const CudaMemory to, CudaMemory::allocate(bytes, "distances"));
    std::vector<cuda::L2Distance> distances(count);
    stream_.copy_in(from.data(), offsets.data(), bytes);
    cuda::l2_cycles_by_address(pages_.data(), from.as<int64_t>(), count, multiprocessors_,
                               to.as<cuda::L2Distance>(), stream_.handle());
    stream_.copy_out(distances.data(), to.data(), bytes);
    SWITCHYARD_TRY(stream_.synchronize("measure where pages lie"));
    std::vector<uint8_t> found(count);
    if (std::ranges::any_of(
            distances, [](const auto& each) { return each.multiprocessor >= L2Sides::kMost; })) {
      return unclear("numbers of multiprocessors are too high");
    }
    std::ranges::transform(distances, found.begin(), [&](const cuda::L2Distance& each) {
      const uint32_t own = sides_.near[each.multiprocessor / 32] >> each.multiprocessor % 32 & 1;
      return static_cast<uint8_t>(own ^ uint32_t{each.cycles >= far_cycles_});
    });
    return found;
  }

  CudaPages& pages_;
  int multiprocessors_;
  CudaStream& stream_;
  L2Sides sides_;
  int32_t far_cycles_ = 0;
};

// One of some thousand distances that was held up is enough to find no order in them: then all are measured again.
Result<L2Sides> survey(CudaPages& pages, int multiprocessors, CudaStream& stream) {
  constexpr int kMostTries = 4;
  for (int tries = 1;; ++tries) {
    Surveyor surveyor(pages, multiprocessors, stream);
    Result<L2Sides> sides = surveyor.sides();
    if (sides.ok()) {
      SWITCHYARD_TRY(surveyor.order_pages());
      return sides;
    }
    if (sides.error().code != Code::unavailable || tries == kMostTries) return sides;
  }
}

struct Placed {
  CudaPages pages;
  L2Sides sides;
};

Result<Placed> place(int64_t bytes, const DeviceFacts& device, CudaStream& stream) {
  Placed placed;
  SWITCHYARD_ASSIGN(placed.pages, CudaPages::allocate(bytes));
  SWITCHYARD_ASSIGN(placed.sides, survey(placed.pages, device.num_multiprocessors, stream));
  placed.pages.settle();
  return placed;
}

}  // namespace

Result<L2Memory> L2Memory::allocate(int64_t bytes, std::string_view purpose, CudaStream& stream) {
  SWITCHYARD_ASSIGN(const std::vector<DeviceFacts> devices, cuda_devices());
  const DeviceFacts& device = devices.at(stream.device());
  const bool gains = device.compute_major == 9 && bytes >= kLeastBytes;  // kernels that go by sides
  if (gains && environment("SWITCHYARD_L2_SIDES") != "0") {
    Result<Placed> placed = place(bytes, device, stream);
    if (placed.ok()) {
      L2Memory memory;
      memory.size_ = bytes;
      memory.pages_ = std::move(placed->pages);
      memory.sides_ = placed->sides;
      return memory;
    }
    if (placed.error().code == Code::out_of_memory) return allocate_plain(bytes, purpose);
    log(LogLevel::warning,
        "{} are not placed by the sides of the L2, which costs prompts some per cent "
        "(SWITCHYARD_L2_SIDES=0 does not try): {}",
        purpose, placed.error().message);
  }
  return allocate_plain(bytes, purpose);
}

Result<L2Memory> L2Memory::allocate_plain(int64_t bytes, std::string_view purpose) {
  L2Memory memory;
  memory.size_ = bytes;
  SWITCHYARD_ASSIGN(memory.plain_, CudaMemory::allocate(bytes, purpose));
  return memory;
}

}  // namespace switchyard
