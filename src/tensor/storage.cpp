// SPDX-License-Identifier: Apache-2.0
// Large memory comes from the kernel directly, at a huge page's boundary; small memory from the heap, where the
// address sanitizer watches its ends and a thousand norms do not cost a thousand maps.
#include "tensor/storage.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "base/topology.h"

namespace switchyard {
namespace {

// From this size on, huge pages save more page-table walks than their rounding costs.
constexpr int64_t kHugePageFrom = int64_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;  // a cache line, and the widest register

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

using Owner = std::shared_ptr<const void>;

Owner allocate_small(size_t size) {
  const size_t rounded = round_up(size, kAlignment);
  void* at = std::aligned_alloc(kAlignment, rounded);
  if (at == nullptr) return nullptr;
  std::memset(at, 0, rounded);
  return Owner(at, [](const void* p) { std::free(const_cast<void*>(p)); });
}

/// The kernel's pages are zero already; untouched ones cost nothing.
Owner allocate_large(size_t size) {
  const size_t mapped = size + kHugePage;
  void* base = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* at = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(base), kHugePage));
  // A wish: refusal changes speed alone. The tail keeps small pages, so that nothing is rounded up.
  ::madvise(at, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return Owner(at, [base, mapped](const void*) { ::munmap(base, mapped); });
}

}  // namespace

Result<Storage> Storage::allocate(int64_t size_bytes) {
  // More than the machine has cannot become useful memory, even where the kernel would promise it.
  const int64_t limit = topology().memory_bytes;
  if (size_bytes < 0 || (limit > 0 && size_bytes > limit)) {
    return fail(Code::out_of_memory, "a buffer of {} bytes was asked for, this machine has {}",
                size_bytes, limit);
  }
  Storage storage;
  storage.size_ = size_bytes;
  if (size_bytes == 0) return storage;
  const auto size = static_cast<size_t>(size_bytes);
  storage.owner_ = size_bytes < kHugePageFrom ? allocate_small(size) : allocate_large(size);
  if (storage.owner_ == nullptr) {
    return fail(Code::out_of_memory, "a buffer of {} bytes ({:.2f} GiB): {}", size_bytes,
                static_cast<double>(size_bytes) / (1 << 30), std::strerror(errno));
  }
  storage.data_ = static_cast<std::byte*>(const_cast<void*>(storage.owner_.get()));
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
