// SPDX-License-Identifier: Apache-2.0
#include "engine/allocation_count.h"

#include <cstdlib>
#include <new>

namespace switchyard {
namespace {
thread_local uint64_t count = 0;

void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  ++count;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* counted(std::size_t size, std::size_t alignment) {
  void* memory = counted_or_null(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

uint64_t allocations_of_this_thread() noexcept { return count; }

}  // namespace switchyard

void* operator new(std::size_t size) {
  return switchyard::counted(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return switchyard::counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return switchyard::counted_or_null(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
