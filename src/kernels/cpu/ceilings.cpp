// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/trace.h"
#include "device/cpu_features.h"
#include "kernels/cpu/isa_region.h"
#include "tensor/storage.h"

namespace switchyard::cpu {
namespace {

constexpr int64_t kWindow = int64_t{32}
                            << 20;  // bytes of a thread: far beyond L2, short beside a disturbance
thread_local volatile float sink;   // keeps results alive

float read_plain(const std::byte* from, int64_t bytes) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < bytes; i += 64) {
    uint64_t line[8];
    std::memcpy(line, from + i, sizeof line);
    for (int j = 0; j < 8; ++j) sums[j] ^= line[j];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return static_cast<float>(all);
}

}  // namespace
}  // namespace switchyard::cpu

SWITCHYARD_ISA_BEGIN("avx2,fma")
namespace switchyard::cpu::avx2 {
namespace {
constexpr double kFlops = 12 * 8 * 2;
float multiply_add(int64_t rounds) {
  __m256 sums[12];
  for (auto& sum : sums) sum = _mm256_set1_ps(1);
  __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
    asm volatile("" : "+x"(a), "+x"(b));
  }
  for (int j = 1; j < 12; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  return _mm256_cvtss_f32(sums[0]);
}
}  // namespace
}  // namespace switchyard::cpu::avx2
SWITCHYARD_ISA_END

SWITCHYARD_ISA_BEGIN("avx512f")
namespace switchyard::cpu::avx512 {
namespace {
constexpr double kFlops = 12 * 16 * 2;
float multiply_add(int64_t rounds) {
  __m512 sums[12];
  for (auto& sum : sums) sum = _mm512_set1_ps(1);
  __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
    asm volatile("" : "+v"(a), "+v"(b));
  }
  for (int j = 1; j < 12; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
  return _mm512_cvtss_f32(sums[0]);
}
float read(const std::byte* from, int64_t bytes) {
  __m512i sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(from + i + j * 64));
    }
  }
  for (int j = 1; j < 4; ++j) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
  return _mm512_cvtss_f32(_mm512_castsi512_ps(sums[0]));
}
}  // namespace
}  // namespace switchyard::cpu::avx512
SWITCHYARD_ISA_END

SWITCHYARD_ISA_BEGIN("amx-tile,amx-bf16,avx512f")
namespace switchyard::cpu::amx {
namespace {
struct TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) const TileShapes kShapes;

void configure() {
  asm volatile("" : : "r"(&kShapes) : "memory");  // GCC 12 believes that 8 bytes are read
  _tile_loadconfig(&kShapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

float read(const std::byte* from, int64_t bytes) {
  configure();
  for (int64_t i = 0; i < bytes; i += 4096) {
    _tile_loadd(4, from + i, 64);
    _tile_loadd(5, from + i + 1024, 64);
    _tile_loadd(6, from + i + 2048, 64);
    _tile_loadd(7, from + i + 3072, 64);
  }
  _tile_release();
  return 0;
}

constexpr double kFlops = 4 * 2.0 * 16 * 16 * 32;
constexpr int64_t kNear = 16 << 10, kFar = 512 << 10;  // A in L1, B in L2
float multiply(const std::byte* data, int64_t rounds) {
  configure();
  const std::byte *a = data, *b = data + kNear;
  for (int64_t i = 0; i < rounds; ++i) {
    const std::byte* row = a + i * 2048 % kNear;
    const std::byte* weight = b + i * 2048 % kFar;
    _tile_loadd(6, weight, 64);
    _tile_loadd(4, row, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weight + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, row + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 0;
}
}  // namespace
}  // namespace switchyard::cpu::amx
SWITCHYARD_ISA_END

namespace switchyard::cpu {
namespace {

// Median seconds of `windows` runs of body(thread) on all threads.
double median_seconds(Pool& pool, int windows, FunctionRef<void(int)> body) {
  std::vector<double> seconds;
  for (int i = 0; i < windows; ++i) {
    const int64_t start = now_ns();
    pool.on_all(body);
    seconds.push_back(static_cast<double>(now_ns() - start) * 1e-9);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// GB/s of the best way of reading, by median window.
double read_gbps(Pool& pool, const Storage& memory) {
  std::vector<float (*)(const std::byte*, int64_t)> ways{read_plain};
  if ((cpu_features().usable & kAvx512f) != 0) ways.push_back(avx512::read);
  if ((cpu_features().usable & kAmxTile) != 0) ways.push_back(amx::read);
  const int threads = pool.num_threads();
  const int64_t windows = memory.size() / (kWindow * threads);
  double best = 0;
  for (const auto read : ways) {
    int64_t window = 0;
    const double seconds = median_seconds(pool, 48, [&](int thread) {
      sink = read(memory.data() + (window % windows * threads + thread) * kWindow, kWindow);
      pool.barrier();
      if (thread == 0) ++window;
    });
    best = std::max(best, static_cast<double>(kWindow) * threads / seconds * 1e-9);
  }
  return best;
}

double fma_gflops(Pool& pool) {
  constexpr int64_t kRounds = 400'000;
  const uint64_t usable = cpu_features().usable;
  if ((usable & kAvx512f) != 0) {
    const double seconds =
        median_seconds(pool, 15, [](int) { sink = avx512::multiply_add(kRounds); });
    return avx512::kFlops * kRounds * pool.num_threads() / seconds * 1e-9;
  }
  if ((usable & kFma) != 0) {
    const double seconds =
        median_seconds(pool, 15, [](int) { sink = avx2::multiply_add(kRounds); });
    return avx2::kFlops * kRounds * pool.num_threads() / seconds * 1e-9;
  }
  return 0;
}

double amx_gflops(Pool& pool, const Storage& memory) {
  if ((cpu_features().usable & kAmxBf16) == 0) return 0;
  constexpr int64_t kRounds = 100'000;
  const double seconds = median_seconds(pool, 31, [&](int thread) {
    sink = amx::multiply(memory.data() + thread * kWindow, kRounds);
  });
  return amx::kFlops * kRounds * pool.num_threads() / seconds * 1e-9;
}

}  // namespace

Result<Ceilings> measure_ceilings(Pool& pool) {
  SWITCHYARD_ASSIGN(const Storage memory, Storage::allocate(std::max<int64_t>(
                                              int64_t{1} << 30, kWindow * 2 * pool.num_threads())));
  std::memset(memory.data(), 0x3C, static_cast<size_t>(memory.size()));
  Pool one({.num_threads = 1});
  Ceilings ceilings;
  ceilings.read_gbps_one = read_gbps(one, memory);
  ceilings.read_gbps_all = read_gbps(pool, memory);
  ceilings.fma_gflops = fma_gflops(pool);
  ceilings.amx_gflops = amx_gflops(pool, memory);
  return ceilings;
}

}  // namespace switchyard::cpu
