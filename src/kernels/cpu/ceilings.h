// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured in the same run as the kernels: reading from memory,
// and multiplying with the operands near the core. Medians over many short windows, because
// neighbours share the memory and the cores.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "base/threads.h"

namespace switchyard::cpu {

struct Ceilings {
  double read_gbps_one = 0;  ///< memory to registers, one thread
  double read_gbps_all = 0;  ///< all threads of the pool
  double amx_gflops = 0;     ///< bf16 tiles, A from L1 and B from L2, all threads; 0 without AMX
  double fma_gflops =
      0;  ///< f32 multiply-add in registers at the widest usable vectors, all threads
};

/// Takes about two seconds and 1 GiB. Honours SWITCHYARD_MAX_ISA. Errors: Code::out_of_memory.
Result<Ceilings> measure_ceilings(Pool& pool);

}  // namespace switchyard::cpu
