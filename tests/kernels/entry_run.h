// SPDX-License-Identifier: Apache-2.0
// Runs one entry of a table with poisoned memory around it: the workspace holds NaN before the run, and what lies behind
// it must survive.
#pragma once
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/threads.h"
#include "cases/tolerances.h"
#include "kernels/grouped_gemm_run.h"
#include "kernels/select.h"
#include "tensor/compare.h"
#include "tensor/storage.h"

namespace switchyard::cases {

inline Pool& test_pool(int num_threads) {
  static Pool one({.num_threads = 1, .pin = false});
  static Pool two({.num_threads = 2, .pin = false});
  static Pool three({.num_threads = 3, .pin = false});
  return num_threads == 1 ? one : num_threads == 2 ? two : three;
}

/// Bytes of which every f32 and every bf16 is NaN.
inline Storage poisoned(int64_t bytes) {
  Storage storage = Storage::allocate(bytes).value();
  std::memset(storage.data(), 0xFF, static_cast<size_t>(bytes));
  return storage;
}

inline std::vector<float> poisoned_values(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::memset(values.data(), 0xFF, values.size() * sizeof(float));
  return values;
}

template <class Op>
const Kernel<Op>& reference_of() {
  return kernels::table<Op>().back();
}

/// Calls test(kernel) for every entry but the reference that can run here and accepts the problem; returns how many.
template <class Op, class Test>
int for_each_entry(const typename Op::Problem& problem, Test&& test) {
  int entries = 0;
  for (const Kernel<Op>& kernel : kernels::table<Op>()) {
    if (&kernel == &reference_of<Op>() || !runs_here(kernel.needs)) continue;
    if (kernel.accept(problem).refused != nullptr) continue;
    SCOPED_TRACE(kernel.name);
    test(kernel);
    ++entries;
  }
  return entries;
}

template <class Op>
void run_entry(const Kernel<Op>& kernel, const typename Op::Problem& problem,
               const typename Op::Args& args, int num_threads) {
  constexpr int64_t kGuard = 64;
  Pool& pool = test_pool(num_threads);
  const int64_t bytes = kernel.workspace(problem, num_threads);
  const Storage workspace = poisoned(bytes + kGuard);
  kernel.run(problem, args, {workspace.data(), static_cast<size_t>(bytes)}, Stream({}, pool));
  for (int64_t i = bytes; i < bytes + kGuard; ++i) {
    ASSERT_EQ(workspace.data()[i], std::byte{0xFF}) << "wrote behind its workspace";
  }
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Within the tolerance of an operation; the error of one element is in units of the root mean square.
inline void expect_close(std::span<const float> found, std::span<const float> expected,
                         std::string_view op, DType dtype) {
  if (expected.empty()) return;
  const Tolerance& limit = tolerance(op, dtype);
  const Comparison c = compare(found, expected);
  double squares = 0;
  for (const float value : expected)
    squares += static_cast<double>(value) * static_cast<double>(value);
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  EXPECT_LE(c.relative_error, limit.relative_error) << c.text();
  EXPECT_LE(c.max_error, limit.max_error * rms) << c.text();
}

/// The values that a cache of the given type can hold without rounding.
inline std::vector<float> bf16_values(int64_t count, uint32_t seed, float scale = 1) {
  std::vector<float> values = random_values(count, seed, scale);
  for (float& value : values) value = to_float(to_bf16(value));
  return values;
}

/// Element i of a buffer of f32 or bf16.
inline float load_element(const std::byte* from, DType dtype, int64_t i) {
  if (dtype == DType::f32) return reinterpret_cast<const float*>(from)[i];
  return to_float(reinterpret_cast<const Bf16*>(from)[i]);
}
inline void store_element(std::byte* to, DType dtype, int64_t i, float value) {
  if (dtype == DType::f32) {
    reinterpret_cast<float*>(to)[i] = value;
  } else {
    reinterpret_cast<Bf16*>(to)[i] = to_bf16(value);
  }
}

/// 0 .. count - 1 in an order that looks like chance and is always the same.
inline std::vector<int32_t> scrambled(int64_t count, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  for (size_t i = order.size(); i > 1; --i) {
    const uint32_t word = philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {seed, 23})[0];
    std::swap(order[i - 1], order[word % i]);
  }
  return order;
}

}  // namespace switchyard::cases
