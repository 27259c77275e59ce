// SPDX-License-Identifier: Apache-2.0
// What this CPU may execute: CPUID, XCR0 (does the system save the registers?) and the kernel's permission for AMX.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard {

/// Bits of a lattice; a kernel states exactly the ones that its code region may use.
enum CpuFeature : uint64_t {
  kAvx2 = 1u << 0,
  kFma = 1u << 1,
  kF16c = 1u << 2,
  kAvx512f = 1u << 3,
  kAvx512bw = 1u << 4,
  kAvx512vl = 1u << 5,
  kAvx512dq = 1u << 6,
  kAvx512bf16 = 1u << 7,
  kAvx512vnni = 1u << 8,
  kAmxTile = 1u << 9,
  kAmxBf16 = 1u << 10,
  kAmxInt8 = 1u << 11,
};

/// The named levels, each with all the bits below it; SWITCHYARD_MAX_ISA names one.
inline constexpr uint64_t kIsaBaseline = 0;
inline constexpr uint64_t kIsaAvx2 = kAvx2 | kFma | kF16c;
inline constexpr uint64_t kIsaAvx512 =
    kIsaAvx2 | kAvx512f | kAvx512bw | kAvx512vl | kAvx512dq | kAvx512bf16 | kAvx512vnni;
inline constexpr uint64_t kIsaAmx = kIsaAvx512 | kAmxTile | kAmxBf16 | kAmxInt8;

struct CpuFeatures {
  uint64_t detected = 0;  ///< what the machine can do
  uint64_t usable = 0;    ///< after SWITCHYARD_MAX_ISA
  std::string model;      ///< brand string
  std::string warning;  ///< an unknown SWITCHYARD_MAX_ISA, or AMX refused by the kernel; else empty
};

/// Read once per process. Asks the kernel for AMX tile permission; a refusal clears the AMX bits.
const CpuFeatures& cpu_features();

/// "avx2 fma avx512f ..." for a set of bits.
std::string cpu_feature_names(uint64_t bits);
/// The highest named level contained in `bits`: "amx", "avx512", "avx2" or "baseline".
std::string_view isa_level_name(uint64_t bits);

}  // namespace switchyard
