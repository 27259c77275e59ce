// SPDX-License-Identifier: Apache-2.0
// Source: Intel Software Developer's Manual, volume 1, 13.3 (XCR0) and volume 2 (CPUID); Linux
// Documentation/x86/xstate.rst (permission for tile data).
#include "device/cpu_features.h"

#include <array>
#include <cstring>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/environment.h"

namespace switchyard {
namespace {

struct Named {
  uint64_t bit;
  std::string_view name;
};
constexpr Named kFeatures[] = {
    {kAvx2, "avx2"},
    {kFma, "fma"},
    {kF16c, "f16c"},
    {kAvx512f, "avx512f"},
    {kAvx512bw, "avx512bw"},
    {kAvx512vl, "avx512vl"},
    {kAvx512dq, "avx512dq"},
    {kAvx512bf16, "avx512_bf16"},
    {kAvx512vnni, "avx512_vnni"},
    {kAmxTile, "amx_tile"},
    {kAmxBf16, "amx_bf16"},
    {kAmxInt8, "amx_int8"},
};

struct Level {
  std::string_view name;
  uint64_t bits;
};
constexpr Level kLevels[] = {
    {"amx", kIsaAmx}, {"avx512", kIsaAvx512}, {"avx2", kIsaAvx2}, {"baseline", kIsaBaseline}};

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// Which register files the operating system saves; without this, a CPUID bit is an empty promise.
uint64_t extended_state(const Registers& leaf1) {
  if (!bit(leaf1.ecx, 27)) return 0;  // OSXSAVE
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

uint64_t detect(const Registers& leaf1) {
  const uint64_t xcr0 = extended_state(leaf1);
  const bool saves_avx = (xcr0 & 0x6) == 0x6, saves_avx512 = (xcr0 & 0xE6) == 0xE6;
  const bool saves_tiles = (xcr0 & 0x60000) == 0x60000;
  const Registers leaf7 = cpuid(7), leaf7_1 = cpuid(7, 1);
  uint64_t bits = 0;
  const auto add = [&bits](bool present, uint64_t feature) { bits |= present ? feature : 0; };
  if (saves_avx) {
    add(bit(leaf7.ebx, 5), kAvx2);
    add(bit(leaf1.ecx, 12), kFma);
    add(bit(leaf1.ecx, 29), kF16c);
  }
  if (saves_avx && saves_avx512) {
    add(bit(leaf7.ebx, 16), kAvx512f);
    add(bit(leaf7.ebx, 30), kAvx512bw);
    add(bit(leaf7.ebx, 31), kAvx512vl);
    add(bit(leaf7.ebx, 17), kAvx512dq);
    add(bit(leaf7.ecx, 11), kAvx512vnni);
    add(bit(leaf7_1.eax, 5), kAvx512bf16);
  }
  if (saves_tiles) {
    add(bit(leaf7.edx, 24), kAmxTile);
    add(bit(leaf7.edx, 22), kAmxBf16);
    add(bit(leaf7.edx, 25), kAmxInt8);
  }
  return bits;
}

// Linux grants the 8 KiB tile state per process, on request.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::string brand() {
  std::array<char, 49> text{};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002 + i);
    std::memcpy(text.data() + i * 16, &r, 16);
  }
  return text.data();
}

CpuFeatures read_features() {
  CpuFeatures features;
  features.model = brand();
  features.detected = detect(cpuid(1));
  constexpr uint64_t kTiles = kAmxTile | kAmxBf16 | kAmxInt8;
  if ((features.detected & kTiles) != 0 && !ask_for_tiles()) {
    features.detected &= ~kTiles;
    features.warning = "the kernel refused permission for AMX tiles; AMX is off";
  }
  features.usable = features.detected;
  const std::optional<std::string> cap = environment("SWITCHYARD_MAX_ISA");
  if (!cap) return features;
  for (const Level& level : kLevels) {
    if (level.name != *cap) continue;
    features.usable &= level.bits;
    return features;
  }
  if (!features.warning.empty()) features.warning += "; ";
  features.warning +=
      "SWITCHYARD_MAX_ISA='" + *cap + "' is unknown (baseline, avx2, avx512, amx); ignored";
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

std::string cpu_feature_names(uint64_t bits) {
  std::string names;
  for (const Named& feature : kFeatures) {
    if ((bits & feature.bit) == 0) continue;
    if (!names.empty()) names += ' ';
    names += feature.name;
  }
  return names;
}

std::string_view isa_level_name(uint64_t bits) {
  for (const Level& level : kLevels) {
    if ((bits & level.bits) == level.bits) return level.name;
  }
  return "baseline";
}

}  // namespace switchyard
