// SPDX-License-Identifier: Apache-2.0
// wgmma m64nNk16, bf16 x bf16 into fp32, both operands in shared memory with K innermost and the 128-byte swizzle.
// N = 8, 16, ..., 256. Thread t of the warpgroup holds, for each 8 columns j, four accumulators:
//   rows 16 * (t / 32) + (t % 32) / 4 (elements 4j, 4j + 1) and the same + 8 (elements 4j + 2, 4j + 3),
//   columns 8j + 2 * (t % 4) and the next.
// Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions".
#pragma once
#include <cstdint>

namespace switchyard::cuda {

/// Describes an operand whose 8-row groups of 64 bf16 lie 1024 bytes apart, swizzled; 16 k further is + 2.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroupStride | (uint64_t{1} << 16) | ((shared_address & 0x3FFFF) >> 4);
}

/// Before the first wgmma that touches registers which other instructions wrote.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// multiply_add(d, a, b): d += a * b.
template <int kColumns>
struct Wgmma;

// The operands of the instruction as text (%0, %1, ...) and as C++ (d[0], d[1], ...), eight columns after eight.
#define SWITCHYARD_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SWITCHYARD_TEXT_8 "%0, %1, %2, %3"
#define SWITCHYARD_LIST_8 SWITCHYARD_D4(0)
#define SWITCHYARD_TEXT_16 SWITCHYARD_TEXT_8 ", %4, %5, %6, %7"
#define SWITCHYARD_LIST_16 SWITCHYARD_LIST_8, SWITCHYARD_D4(4)
#define SWITCHYARD_TEXT_24 SWITCHYARD_TEXT_16 ", %8, %9, %10, %11"
#define SWITCHYARD_LIST_24 SWITCHYARD_LIST_16, SWITCHYARD_D4(8)
#define SWITCHYARD_TEXT_32 SWITCHYARD_TEXT_24 ", %12, %13, %14, %15"
#define SWITCHYARD_LIST_32 SWITCHYARD_LIST_24, SWITCHYARD_D4(12)
#define SWITCHYARD_TEXT_40 SWITCHYARD_TEXT_32 ", %16, %17, %18, %19"
#define SWITCHYARD_LIST_40 SWITCHYARD_LIST_32, SWITCHYARD_D4(16)
#define SWITCHYARD_TEXT_48 SWITCHYARD_TEXT_40 ", %20, %21, %22, %23"
#define SWITCHYARD_LIST_48 SWITCHYARD_LIST_40, SWITCHYARD_D4(20)
#define SWITCHYARD_TEXT_56 SWITCHYARD_TEXT_48 ", %24, %25, %26, %27"
#define SWITCHYARD_LIST_56 SWITCHYARD_LIST_48, SWITCHYARD_D4(24)
#define SWITCHYARD_TEXT_64 SWITCHYARD_TEXT_56 ", %28, %29, %30, %31"
#define SWITCHYARD_LIST_64 SWITCHYARD_LIST_56, SWITCHYARD_D4(28)
#define SWITCHYARD_TEXT_72 SWITCHYARD_TEXT_64 ", %32, %33, %34, %35"
#define SWITCHYARD_LIST_72 SWITCHYARD_LIST_64, SWITCHYARD_D4(32)
#define SWITCHYARD_TEXT_80 SWITCHYARD_TEXT_72 ", %36, %37, %38, %39"
#define SWITCHYARD_LIST_80 SWITCHYARD_LIST_72, SWITCHYARD_D4(36)
#define SWITCHYARD_TEXT_88 SWITCHYARD_TEXT_80 ", %40, %41, %42, %43"
#define SWITCHYARD_LIST_88 SWITCHYARD_LIST_80, SWITCHYARD_D4(40)
#define SWITCHYARD_TEXT_96 SWITCHYARD_TEXT_88 ", %44, %45, %46, %47"
#define SWITCHYARD_LIST_96 SWITCHYARD_LIST_88, SWITCHYARD_D4(44)
#define SWITCHYARD_TEXT_104 SWITCHYARD_TEXT_96 ", %48, %49, %50, %51"
#define SWITCHYARD_LIST_104 SWITCHYARD_LIST_96, SWITCHYARD_D4(48)
#define SWITCHYARD_TEXT_112 SWITCHYARD_TEXT_104 ", %52, %53, %54, %55"
#define SWITCHYARD_LIST_112 SWITCHYARD_LIST_104, SWITCHYARD_D4(52)
#define SWITCHYARD_TEXT_120 SWITCHYARD_TEXT_112 ", %56, %57, %58, %59"
#define SWITCHYARD_LIST_120 SWITCHYARD_LIST_112, SWITCHYARD_D4(56)
#define SWITCHYARD_TEXT_128 SWITCHYARD_TEXT_120 ", %60, %61, %62, %63"
#define SWITCHYARD_LIST_128 SWITCHYARD_LIST_120, SWITCHYARD_D4(60)
#define SWITCHYARD_TEXT_136 SWITCHYARD_TEXT_128 ", %64, %65, %66, %67"
#define SWITCHYARD_LIST_136 SWITCHYARD_LIST_128, SWITCHYARD_D4(64)
#define SWITCHYARD_TEXT_144 SWITCHYARD_TEXT_136 ", %68, %69, %70, %71"
#define SWITCHYARD_LIST_144 SWITCHYARD_LIST_136, SWITCHYARD_D4(68)
#define SWITCHYARD_TEXT_152 SWITCHYARD_TEXT_144 ", %72, %73, %74, %75"
#define SWITCHYARD_LIST_152 SWITCHYARD_LIST_144, SWITCHYARD_D4(72)
#define SWITCHYARD_TEXT_160 SWITCHYARD_TEXT_152 ", %76, %77, %78, %79"
#define SWITCHYARD_LIST_160 SWITCHYARD_LIST_152, SWITCHYARD_D4(76)
#define SWITCHYARD_TEXT_168 SWITCHYARD_TEXT_160 ", %80, %81, %82, %83"
#define SWITCHYARD_LIST_168 SWITCHYARD_LIST_160, SWITCHYARD_D4(80)
#define SWITCHYARD_TEXT_176 SWITCHYARD_TEXT_168 ", %84, %85, %86, %87"
#define SWITCHYARD_LIST_176 SWITCHYARD_LIST_168, SWITCHYARD_D4(84)
#define SWITCHYARD_TEXT_184 SWITCHYARD_TEXT_176 ", %88, %89, %90, %91"
#define SWITCHYARD_LIST_184 SWITCHYARD_LIST_176, SWITCHYARD_D4(88)
#define SWITCHYARD_TEXT_192 SWITCHYARD_TEXT_184 ", %92, %93, %94, %95"
#define SWITCHYARD_LIST_192 SWITCHYARD_LIST_184, SWITCHYARD_D4(92)
#define SWITCHYARD_TEXT_200 SWITCHYARD_TEXT_192 ", %96, %97, %98, %99"
#define SWITCHYARD_LIST_200 SWITCHYARD_LIST_192, SWITCHYARD_D4(96)
#define SWITCHYARD_TEXT_208 SWITCHYARD_TEXT_200 ", %100, %101, %102, %103"
#define SWITCHYARD_LIST_208 SWITCHYARD_LIST_200, SWITCHYARD_D4(100)
#define SWITCHYARD_TEXT_216 SWITCHYARD_TEXT_208 ", %104, %105, %106, %107"
#define SWITCHYARD_LIST_216 SWITCHYARD_LIST_208, SWITCHYARD_D4(104)
#define SWITCHYARD_TEXT_224 SWITCHYARD_TEXT_216 ", %108, %109, %110, %111"
#define SWITCHYARD_LIST_224 SWITCHYARD_LIST_216, SWITCHYARD_D4(108)
#define SWITCHYARD_TEXT_232 SWITCHYARD_TEXT_224 ", %112, %113, %114, %115"
#define SWITCHYARD_LIST_232 SWITCHYARD_LIST_224, SWITCHYARD_D4(112)
#define SWITCHYARD_TEXT_240 SWITCHYARD_TEXT_232 ", %116, %117, %118, %119"
#define SWITCHYARD_LIST_240 SWITCHYARD_LIST_232, SWITCHYARD_D4(116)
#define SWITCHYARD_TEXT_248 SWITCHYARD_TEXT_240 ", %120, %121, %122, %123"
#define SWITCHYARD_LIST_248 SWITCHYARD_LIST_240, SWITCHYARD_D4(120)
#define SWITCHYARD_TEXT_256 SWITCHYARD_TEXT_248 ", %124, %125, %126, %127"
#define SWITCHYARD_LIST_256 SWITCHYARD_LIST_248, SWITCHYARD_D4(124)

// kA, kB: the numbers of the operands behind the accumulators.
#define SWITCHYARD_WGMMA(kN, kA, kB)                                                    \
  template <>                                                                           \
  struct Wgmma<kN> {                                                                    \
    static __device__ __forceinline__ void multiply_add(float (&d)[kN / 2], uint64_t a, \
                                                        uint64_t b) {                   \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kN                              \
                   "k16.f32.bf16.bf16 {" SWITCHYARD_TEXT_##kN "}, %" #kA ", %" #kB      \
                                                              ", 1, 1, 1, 0, 0;"        \
                   : SWITCHYARD_LIST_##kN                                               \
                   : "l"(a), "l"(b));                                                   \
    }                                                                                   \
  };

SWITCHYARD_WGMMA(8, 4, 5)
SWITCHYARD_WGMMA(16, 8, 9)
SWITCHYARD_WGMMA(24, 12, 13)
SWITCHYARD_WGMMA(32, 16, 17)
SWITCHYARD_WGMMA(40, 20, 21)
SWITCHYARD_WGMMA(48, 24, 25)
SWITCHYARD_WGMMA(56, 28, 29)
SWITCHYARD_WGMMA(64, 32, 33)
SWITCHYARD_WGMMA(72, 36, 37)
SWITCHYARD_WGMMA(80, 40, 41)
SWITCHYARD_WGMMA(88, 44, 45)
SWITCHYARD_WGMMA(96, 48, 49)
SWITCHYARD_WGMMA(104, 52, 53)
SWITCHYARD_WGMMA(112, 56, 57)
SWITCHYARD_WGMMA(120, 60, 61)
SWITCHYARD_WGMMA(128, 64, 65)
SWITCHYARD_WGMMA(136, 68, 69)
SWITCHYARD_WGMMA(144, 72, 73)
SWITCHYARD_WGMMA(152, 76, 77)
SWITCHYARD_WGMMA(160, 80, 81)
SWITCHYARD_WGMMA(168, 84, 85)
SWITCHYARD_WGMMA(176, 88, 89)
SWITCHYARD_WGMMA(184, 92, 93)
SWITCHYARD_WGMMA(192, 96, 97)
SWITCHYARD_WGMMA(200, 100, 101)
SWITCHYARD_WGMMA(208, 104, 105)
SWITCHYARD_WGMMA(216, 108, 109)
SWITCHYARD_WGMMA(224, 112, 113)
SWITCHYARD_WGMMA(232, 116, 117)
SWITCHYARD_WGMMA(240, 120, 121)
SWITCHYARD_WGMMA(248, 124, 125)
SWITCHYARD_WGMMA(256, 128, 129)

#undef SWITCHYARD_WGMMA

}  // namespace switchyard::cuda
