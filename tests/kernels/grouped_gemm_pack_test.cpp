// SPDX-License-Identifier: Apache-2.0
// Packings: every source (type, strides) gives the same panels; the panels are what
// grouped_gemm_pack.h says.
#include "kernels/cpu/grouped_gemm_pack.h"

#include <cstring>

#include <gtest/gtest.h>

#include "kernels/grouped_gemm_run.h"
#include "kernels/ops/row_major.h"

namespace switchyard {
namespace {

using cases::random_values;

// A matrix [n, k] of values that f32, f16 and bf16 all hold exactly, in one type and one order of
// dimensions.
template <class T>
struct Matrix {
  std::vector<T> data;
  TensorView view;

  Matrix(int64_t n, int64_t k, const std::vector<float>& values, bool transposed, int64_t gap) {
    const int64_t inner = (transposed ? n : k) + gap;
    data.assign(static_cast<size_t>((transposed ? k : n) * inner), T{});
    view = TensorView::of(data.data(), {n, k});
    view.stride[0] = transposed ? 1 : inner;
    view.stride[1] = transposed ? inner : 1;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        data[i * view.stride[0] + j * view.stride[1]] = narrow(values[i * k + j]);
      }
    }
  }
  static T narrow(float value) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return to_bf16(value);
    } else if constexpr (std::is_same_v<T, F16>) {
      return to_f16(value);
    } else {
      return value;
    }
  }
};

std::vector<float> coarse_values(int64_t count, uint32_t seed) {
  std::vector<float> values = random_values(count, seed, 64);
  for (float& value : values) value = std::trunc(value) / 8;
  return values;
}

template <class T>
std::vector<std::byte> packed(const GroupedGemm::Packing& packing,
                              const GroupedGemm::Problem& problem, bool transposed, int64_t gap) {
  const Matrix<T> gate(problem.n, problem.k, coarse_values(problem.n * problem.k, 3), transposed,
                       gap);
  const Matrix<T> up(problem.n, problem.k, coarse_values(problem.n * problem.k, 4), transposed,
                     gap);
  const Storage to = *Storage::allocate(packing.slot_bytes(problem));
  std::memset(to.data(), 0xA5, static_cast<size_t>(to.size()));
  packing.pack(problem, gate.view, problem.fusion == Fusion::swiglu ? &up.view : nullptr,
               to.data());
  return {to.data(), to.data() + to.size()};
}

struct Shape2 {
  int64_t n, k;
};
constexpr Shape2 kShapes[] = {{1, 1}, {32, 32}, {31, 33}, {64, 96}, {70, 61}, {5, 128}};

TEST(GroupedGemmPack, EverySourceGivesTheSamePanels) {
  for (const auto* packing : {&cpu::kPanel32F32, &cpu::kPanel32Bf16, &kRowMajorPacking}) {
    for (const DType weight : {DType::f32, DType::bf16}) {
      if (packing == &cpu::kPanel32F32 && weight == DType::bf16) continue;
      if (packing == &cpu::kPanel32Bf16 && weight == DType::f32) continue;
      for (const auto& [n, k] : kShapes) {
        const GroupedGemm::Problem problem{
            .n = n, .k = k, .weight = weight, .fusion = Fusion::swiglu};
        const auto expected = packed<float>(*packing, problem, false, 0);
        for (const bool transposed : {false, true}) {
          for (const int64_t gap : {0, 3}) {
            SCOPED_TRACE(testing::Message() << packing->name << " n " << n << " k " << k
                                            << (transposed ? " transposed" : "") << " gap " << gap);
            // Row-major bytes are compared without what rounds them up to 64.
            const size_t bytes = packing == &kRowMajorPacking
                                     ? row_major_elements(problem) * dtype_bytes(weight)
                                     : expected.size();
            for (const auto& found : {packed<float>(*packing, problem, transposed, gap),
                                      packed<F16>(*packing, problem, transposed, gap),
                                      packed<Bf16>(*packing, problem, transposed, gap)}) {
              ASSERT_EQ(found.size(), expected.size());
              EXPECT_EQ(0, std::memcmp(found.data(), expected.data(), bytes));
            }
          }
        }
      }
    }
  }
}

// Element (part, n, k) of the panels, and zero wherever n or k lies beyond the matrix.
TEST(GroupedGemmPack, PanelsAreAsDocumented) {
  for (const auto& [n, k] : kShapes) {
    for (const DType weight : {DType::f32, DType::bf16}) {
      const GroupedGemm::Problem problem{
          .n = n, .k = k, .weight = weight, .fusion = Fusion::swiglu};
      const bool wide = weight == DType::f32;
      const auto bytes =
          packed<Bf16>(wide ? cpu::kPanel32F32 : cpu::kPanel32Bf16, problem, false, 0);
      const std::vector<float> parts[2] = {coarse_values(n * k, 3), coarse_values(n * k, 4)};
      const int64_t padded_k = wide ? k : (k + 31) / 32 * 32;
      const int64_t panel = padded_k * 32 * (wide ? 4 : 2);
      ASSERT_EQ(std::ssize(bytes), (n + 31) / 32 * 2 * panel);
      for (int64_t i = 0; i < (n + 31) / 32 * 32; ++i) {
        for (int64_t j = 0; j < padded_k; ++j) {
          for (int part = 0; part < 2; ++part) {
            const int64_t base = (i / 32 * 2 + part) * panel;
            const float expected = i < n && j < k ? parts[part][i * k + j] : 0;
            float found = 0;
            if (wide) {
              std::memcpy(&found, bytes.data() + base + (j * 32 + i % 32) * 4, 4);
            } else {
              const int64_t at =
                  j / 32 * 1024 + i % 32 / 16 * 512 + j % 32 / 2 * 32 + i % 16 * 2 + j % 2;
              Bf16 bits;
              std::memcpy(&bits, bytes.data() + base + at * 2, 2);
              found = to_float(bits);
            }
            ASSERT_EQ(found, expected) << "n " << i << " k " << j << " part " << part;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
