// SPDX-License-Identifier: Apache-2.0
// Target regions: functions between BEGIN and END may use the named instruction sets, and nothing else in the file may.
// Every other header must be included before BEGIN, so that no inline function of a library is compiled for the set.
//
//   SWITCHYARD_ISA_BEGIN("avx2,fma,f16c")
//   namespace ... { ... #include "kernels/cpu/x.inl.h" ... }
//   SWITCHYARD_ISA_END
#pragma once

#define SWITCHYARD_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define SWITCHYARD_ISA_BEGIN(features) \
  SWITCHYARD_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SWITCHYARD_ISA_END _Pragma("clang attribute pop")
#else
// GCC 12 warns about values that its own intrinsics headers leave undefined on purpose. The warning is judged where
// the header's text stands, so it is silenced from here on, before the header is read.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define SWITCHYARD_ISA_BEGIN(features) \
  _Pragma("GCC push_options") SWITCHYARD_PRAGMA(GCC target(features))
#define SWITCHYARD_ISA_END _Pragma("GCC pop_options")
#endif

#include <immintrin.h>
