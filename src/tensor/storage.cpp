// SPDX-License-Identifier: Apache-2.0
#include "tensor/storage.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

namespace switchyard {
namespace {

// From this size on, huge pages save more page-table walks than their rounding costs.
constexpr int64_t kHugePageFrom = int64_t{4} << 20;
constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<Storage> Storage::allocate(int64_t size_bytes) {
  if (size_bytes < 0) {
    return fail(Code::out_of_memory, "a buffer of {} bytes cannot exist", size_bytes);
  }
  Storage storage;
  storage.size_ = size_bytes;
  if (size_bytes == 0) return storage;
  const bool huge = size_bytes >= kHugePageFrom;
  const int64_t slack = huge ? kHugePage : 0;
  if (size_bytes > INT64_MAX - slack) {
    return fail(Code::out_of_memory, "a buffer of {} bytes cannot exist", size_bytes);
  }
  const auto mapped = static_cast<size_t>(size_bytes + slack);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return fail(Code::out_of_memory, "a buffer of {} bytes ({:.2f} GiB): {}", size_bytes,
                static_cast<double>(size_bytes) / (1 << 30), std::strerror(errno));
  }
  auto at = reinterpret_cast<uintptr_t>(base);
  if (huge) {
    at = (at + kHugePage - 1) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(at), static_cast<size_t>(size_bytes), MADV_HUGEPAGE);
  }
  storage.owner_ = std::shared_ptr<const void>(
      base, [mapped](const void* p) { munmap(const_cast<void*>(p), mapped); });
  storage.data_ = reinterpret_cast<std::byte*>(at);
  return storage;
}

Storage Storage::share(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) {
  Storage storage;
  storage.owner_ = std::move(owner);
  storage.data_ = const_cast<std::byte*>(bytes.data());
  storage.size_ = static_cast<int64_t>(bytes.size());
  return storage;
}

}  // namespace switchyard
