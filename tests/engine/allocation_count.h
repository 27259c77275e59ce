// SPDX-License-Identifier: Apache-2.0
// Counts the allocations of this test program: operator new is replaced in allocation_count.cpp.
#pragma once
#include <cstdint>

namespace switchyard {

/// Allocations of this thread so far.
uint64_t allocations_of_this_thread() noexcept;

}  // namespace switchyard
