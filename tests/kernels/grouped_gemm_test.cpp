// SPDX-License-Identifier: Apache-2.0
// Every entry of the grouped GEMM table against the reference, over tests/cases/grouped_gemm.h.
#include "cases/grouped_gemm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/tolerances.h"
#include "kernels/grouped_gemm_run.h"
#include "kernels/select.h"
#include "tensor/compare.h"

namespace switchyard::kernels {
namespace {

using cases::GroupedGemmCase;
using cases::GroupedGemmInputs;
using cases::GroupedGemmResult;
using cases::run_grouped_gemm;

Pool& test_pool(int num_threads) {
  static Pool one({.num_threads = 1, .pin = false});
  static Pool two({.num_threads = 2, .pin = false});
  static Pool three({.num_threads = 3, .pin = false});
  return num_threads == 1 ? one : num_threads == 2 ? two : three;
}

const Kernel<GroupedGemm>& reference() { return table<GroupedGemm>().back(); }

// Calls test(kernel, problem, inputs) for every entry that runs on this machine, in every weight
// type and layout that it accepts, over all shapes.
template <class Test>
void for_each_problem(const std::vector<GroupedGemmCase>& shapes, Test&& test) {
  constexpr RowLayout kRows = RowLayout::rows_f32, kTiles = RowLayout::tiles_bf16;
  for (const GroupedGemmCase& shape : shapes) {
    const GroupedGemmInputs inputs(shape);
    for (const DType weight : {DType::f32, DType::bf16}) {
      for (const auto& [in, out] : {std::pair{kRows, kRows}, {kTiles, kRows}, {kTiles, kTiles}}) {
        const GroupedGemm::Problem problem = inputs.problem(weight, in, out);
        for (const Kernel<GroupedGemm>& kernel : table<GroupedGemm>()) {
          if (&kernel == &reference() || !cases::runs_here(kernel.needs)) continue;
          if (kernel.accept(problem).refused != nullptr) continue;
          SCOPED_TRACE(fmt::format("{}: {}, weight {}, out {}", kernel.name, shape.name,
                                   dtype_name(weight), out == kRows ? "rows" : "tiles"));
          test(kernel, problem, inputs);
        }
      }
    }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The error of one element in units of the root mean square of the expected result.
void expect_close(const std::vector<float>& found, const std::vector<float>& expected,
                  const cases::Tolerance& tolerance) {
  if (expected.empty()) return;
  const Comparison c = compare(found, expected);
  double squares = 0;
  for (const float value : expected)
    squares += static_cast<double>(value) * static_cast<double>(value);
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  EXPECT_LE(c.relative_error, tolerance.relative_error) << c.text();
  EXPECT_LE(c.max_error, tolerance.max_error * rms) << c.text();
}

TEST(GroupedGemm, EveryEntryAgreesWithTheReference) {
  int problems = 0;
  for_each_problem(cases::grouped_gemm_cases(), [&](const auto& kernel, const auto& problem,
                                                    const auto& inputs) {
    const GroupedGemmResult expected = run_grouped_gemm(reference(), problem, inputs, test_pool(2));
    const GroupedGemmResult found = run_grouped_gemm(kernel, problem, inputs, test_pool(2));
    EXPECT_TRUE(found.clean) << "padding is not zero, or something was written behind the end";
    const DType limit = problem.out == RowLayout::tiles_bf16 ? DType::bf16 : DType::f32;
    expect_close(found.y, expected.y, cases::tolerance("grouped_gemm", limit));
    ++problems;
  });
  EXPECT_GT(problems, 0);
}

TEST(GroupedGemm, BitsDoNotDependOnTheThreadCount) {
  for_each_problem(cases::grouped_gemm_cases(), [&](const auto& kernel, const auto& problem,
                                                    const auto& inputs) {
    const std::vector<float> one = run_grouped_gemm(kernel, problem, inputs, test_pool(1)).y;
    for (const int threads : {2, 3}) {
      const auto many = run_grouped_gemm(kernel, problem, inputs, test_pool(threads)).y;
      EXPECT_TRUE(same_bits(one, many)) << threads << " threads";
    }
  });
}

// A row alone gives the bits that it gives among others, on every entry: all of them sum in one
// order.
TEST(GroupedGemm, RowsDoNotSeeTheirNeighbours) {
  const std::vector<int> rows{1, 47, 3, 300};
  const std::vector<GroupedGemmCase> shapes{{"one step", 70, 32, rows, Fusion::swiglu},
                                            {"odd k", 70, 129, rows},
                                            {"k in slices", 40, 2080, rows, Fusion::swiglu}};
  for_each_problem(shapes, [&](const auto& kernel, auto problem, const auto& inputs) {
    problem.deterministic = true;
    const std::vector<float> among = run_grouped_gemm(kernel, problem, inputs, test_pool(2)).y;
    for (const int row : {0, 1, 16, 47, 48, 50, 51, 200, 350}) {
      problem.max_rows = 1;
      const auto alone = run_grouped_gemm(kernel, problem, inputs.only_row(row), test_pool(1)).y;
      const auto* same = among.data() + row * problem.n;
      EXPECT_EQ(0, std::memcmp(alone.data(), same, alone.size() * sizeof(float))) << "row " << row;
    }
  });
}

// GCC 12 can lose the configuration of the tiles: then this traps. Whole numbers make the product
// exact.
TEST(GroupedGemm, MultipliesThroughTiles) {
  const auto entries = table<GroupedGemm>();
  const auto amx = std::ranges::find_if(
      entries, [](const auto& kernel) { return (kernel.needs.cpu_features & kAmxTile) != 0; });
  ASSERT_NE(amx, entries.end());
  if (!cases::runs_here(amx->needs)) GTEST_SKIP() << "no AMX here";
  GroupedGemmInputs inputs({"whole numbers", 32, 32, {32}});
  for (int64_t r = 0; r < 32; ++r) {
    for (int64_t c = 0; c < 32; ++c) {
      inputs.x[r * 32 + c] = static_cast<float>(r == c ? 2 : 0);
      inputs.weight[r * 32 + c] = static_cast<float>(r * 8 + c % 8);  // [n, k]
    }
  }
  const auto problem = inputs.problem(DType::bf16, RowLayout::tiles_bf16, RowLayout::rows_f32);
  const auto y = run_grouped_gemm(*amx, problem, inputs, test_pool(1)).y;
  for (int64_t r = 0; r < 32; ++r) {
    for (int64_t n = 0; n < 32; ++n) EXPECT_EQ(y[r * 32 + n], 2 * inputs.weight[n * 32 + r]);
  }
}

TEST(GroupedGemm, TellsTheShareOfTheEpilogueWhenAsked) {
  const std::vector<GroupedGemmCase> shapes{{"split", 64, 256, {40, 3}, Fusion::swiglu}};
  for_each_problem(shapes, [&](const auto& kernel, const auto& problem, const auto& inputs) {
    PhaseSplit split;
    const auto timed = run_grouped_gemm(kernel, problem, inputs, test_pool(2), &split).y;
    EXPECT_GT(split.busy_ticks.load(), 0);
    EXPECT_LE(split.epilogue_ticks.load(), split.busy_ticks.load());
    if (kernel.role == Role::candidate) {
      EXPECT_GT(split.epilogue_ticks.load(), 0);
    }
    EXPECT_TRUE(same_bits(timed, run_grouped_gemm(kernel, problem, inputs, test_pool(2)).y));
  });
}

}  // namespace
}  // namespace switchyard::kernels
