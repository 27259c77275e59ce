// SPDX-License-Identifier: Apache-2.0
// What every instruction set's file includes before its region, and the constants that the shared texts use.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/trace.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/grouped_gemm_pack.h"
#include "kernels/cpu/grouped_gemm_work.h"
#include "kernels/cpu/isa_region.h"
#include "tensor/float_types.h"

namespace switchyard::cpu {

/// Values that are worth waking a thread for: some 10 microseconds of moving or summing them.
inline constexpr int64_t kGrainValues = 32768;

}  // namespace switchyard::cpu
