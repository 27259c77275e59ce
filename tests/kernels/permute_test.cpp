// SPDX-License-Identifier: Apache-2.0
// Every entry of gather and combine against the reference, over tests/cases/permute.h.
#include "cases/permute.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/entry_run.h"

namespace switchyard::kernels {
namespace {

using cases::CombineCase;
using cases::GatherCase;
using cases::same_bits;

// The rows of a case, and the buffer that they were gathered into.
struct GatherRun {
  std::vector<int32_t> slot_offset{0}, row_token;
  std::vector<float> row_weight;
  Storage y;

  GatherRun(const Kernel<Gather>& kernel, const GatherCase& c, const std::vector<float>& x,
            RowLayout out, int num_threads) {
    for (const int rows : c.rows) slot_offset.push_back(slot_offset.back() + rows);
    const int64_t rows = slot_offset.back();
    for (int64_t r = 0; r < rows; ++r) {
      const bool empty = c.empty_every > 0 && r % c.empty_every == 0;
      row_token.push_back(static_cast<int32_t>(empty ? -1 : c.by_token ? r * 7 % c.tokens : r));
      row_weight.push_back(static_cast<float>(r % 11) * 0.3f);
    }
    const Gather::Problem problem{static_cast<int>(c.rows.size()), c.width, rows, out};
    y = cases::poisoned(row_layout_bytes(out, rows, c.width, problem.groups) + kGuard);
    cases::run_entry(kernel, problem,
                     {.x = x.data(),
                      .row_token = c.by_token ? row_token.data() : nullptr,
                      .slot_offset = slot_offset.data(),
                      .row_weight = c.weighed ? row_weight.data() : nullptr,
                      .y = y.data()},
                     num_threads);
  }
  static constexpr int64_t kGuard = 128;
};

// Values of all kinds: NaN, infinities, subnormal numbers, and numbers half-way between two bf16 values.
std::vector<float> awkward_values(int64_t count) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = cases::random_values(count, 1, 10);
  const float kinds[] = {Limits::quiet_NaN(),
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::denorm_min(),
                         -1e-40f,
                         Limits::max(),
                         1 + 0x1p-8f,
                         1 + 0x3p-8f,
                         -0.0f,
                         1 + 0x1p-8f + 0x1p-20f};
  for (size_t i = 0; i < values.size(); i += 3) values[i] = kinds[i / 3 % std::size(kinds)];
  return values;
}

template <class Test>
void for_each_gather(Test&& test) {
  for (const GatherCase& shape : cases::gather_cases()) {
    const std::vector<float> x = awkward_values(shape.tokens * shape.width);
    for (const RowLayout out : {RowLayout::rows_f32, RowLayout::tiles_bf16}) {
      SCOPED_TRACE(
          fmt::format("{}, {}", shape.name, out == RowLayout::rows_f32 ? "rows" : "tiles"));
      const Gather::Problem problem{static_cast<int>(shape.rows.size()), shape.width, 1, out};
      cases::for_each_entry<Gather>(problem,
                                    [&](const auto& kernel) { test(kernel, shape, x, out); });
    }
  }
}

TEST(Gather, EveryEntryMovesTheSameBits) {
  for_each_gather([](const auto& kernel, const GatherCase& shape, const auto& x, RowLayout out) {
    for (const int threads : {1, 2, 3}) {
      const GatherRun expected(cases::reference_of<Gather>(), shape, x, out, 1);
      const GatherRun found(kernel, shape, x, out, threads);
      const auto bytes = static_cast<size_t>(expected.y.size());
      EXPECT_EQ(0, std::memcmp(found.y.data(), expected.y.data(), bytes)) << threads << " threads";
    }
  });
}

// The reference itself, against the layout as tests write it down.
TEST(Gather, TilesLieAsTheLayoutSays) {
  for (const GatherCase& shape : cases::gather_cases()) {
    SCOPED_TRACE(shape.name);
    const std::vector<float> x = awkward_values(shape.tokens * shape.width);
    const GatherRun run(cases::reference_of<Gather>(), shape, x, RowLayout::tiles_bf16, 1);
    Storage rest = cases::poisoned(run.y.size());
    std::memcpy(rest.data(), run.y.data(), static_cast<size_t>(run.y.size()));
    int wrong = 0;
    cases::for_each_row(run.slot_offset, [&](int64_t row, int64_t block, int64_t i) {
      for (int64_t c = 0; c < (shape.width + 31) / 32 * 32; ++c) {
        const int64_t at = cases::tile_byte(block, i, c, shape.width);
        Bf16 found;
        std::memcpy(&found, run.y.data() + at, sizeof found);
        const int64_t token = run.row_token[static_cast<size_t>(row)];
        const bool zero = token < 0 || c >= shape.width;
        float value = zero ? 0 : x[static_cast<size_t>(token * shape.width + c)];
        if (shape.weighed) value *= run.row_weight[static_cast<size_t>(row)];
        wrong += found.bits != to_bf16(value).bits;
        std::memset(rest.data() + at, 0xFF, sizeof found);
      }
    });
    EXPECT_EQ(wrong, 0);
    for (int64_t i = 0; i < rest.size(); ++i) wrong += rest.data()[i] != std::byte{0xFF};
    EXPECT_EQ(wrong, 0) << "wrote into padding rows or behind the end";
  }
}

// The result [T, D] of tokens [first, first + tokens) of a case.
std::vector<float> run_combine(const Kernel<Combine>& kernel, const CombineCase& c, int64_t first,
                               int64_t tokens, int num_threads) {
  const int64_t picks = c.tokens * c.top_k;
  const std::vector<float> rows = cases::random_values(picks * c.width, 1, 2);
  std::vector<int32_t> pick_row = cases::scrambled(picks, 2);
  for (int64_t i = 0; c.drop_every > 0 && i < picks; i += c.drop_every) {
    pick_row[static_cast<size_t>(i)] = -1;
  }
  const std::vector<float> weight = cases::random_values(picks, 3);
  const std::vector<float> shared = cases::random_values(c.tokens * c.width, 4);
  const std::vector<float> shared_weight = cases::random_values(c.tokens, 5);
  const std::vector<float> stream = cases::random_values(c.tokens * c.width, 6);
  std::vector<float> y = cases::poisoned_values((tokens + 1) * c.width);
  std::copy_n(stream.begin() + first * c.width, tokens * c.width, y.begin());
  cases::run_entry(kernel, {.width = c.width, .top_k = c.top_k},
                   {.rows = rows.data(),
                    .pick_row = pick_row.data() + first * c.top_k,
                    .weight = weight.data() + first * c.top_k,
                    .shared = c.shared ? shared.data() + first * c.width : nullptr,
                    .shared_weight = c.shared_weight ? shared_weight.data() + first : nullptr,
                    .scale = c.scale,
                    .y = y.data(),
                    .tokens = tokens},
                   num_threads);
  const std::vector<float> guard = cases::poisoned_values(c.width);
  EXPECT_TRUE(same_bits(std::span(y).subspan(tokens * c.width), guard)) << "wrote behind the end";
  y.resize(static_cast<size_t>(tokens * c.width));
  return y;
}

template <class Test>
void for_each_combine(Test&& test) {
  for (const CombineCase& shape : cases::combine_cases()) {
    SCOPED_TRACE(shape.name);
    cases::for_each_entry<Combine>({.width = shape.width, .top_k = shape.top_k},
                                   [&](const auto& kernel) { test(kernel, shape); });
  }
}

TEST(Combine, EveryEntryAgreesWithTheReference) {
  for_each_combine([](const auto& kernel, const CombineCase& shape) {
    const auto expected = run_combine(cases::reference_of<Combine>(), shape, 0, shape.tokens, 1);
    cases::expect_close(run_combine(kernel, shape, 0, shape.tokens, 2), expected, "combine",
                        DType::f32);
  });
}

TEST(Combine, BitsDependNeitherOnThreadsNorOnOtherTokens) {
  for_each_combine([](const auto& kernel, const CombineCase& shape) {
    const auto one = run_combine(kernel, shape, 0, shape.tokens, 1);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(same_bits(one, run_combine(kernel, shape, 0, shape.tokens, threads)))
          << threads << " threads";
    }
    for (int64_t t = 0; t < shape.tokens; t += 1 + shape.tokens / 8) {
      const auto alone = run_combine(kernel, shape, t, 1, 1);
      EXPECT_TRUE(same_bits(alone, std::span(one).subspan(t * shape.width, shape.width)))
          << "token " << t;
    }
  });
}

// What was dropped must not even be read: there may be no row.
TEST(Combine, DroppedPicksLeaveTheStreamAlone) {
  for (const Kernel<Combine>& kernel : table<Combine>()) {
    if (!cases::runs_here(kernel.needs)) continue;
    SCOPED_TRACE(kernel.name);
    std::vector<float> y = awkward_values(37);
    const std::vector<float> before = y;
    const std::vector<int32_t> pick_row{-1, -1};
    const std::vector<float> weight{std::nanf(""), 1};
    cases::run_entry(
        kernel, {.width = 37, .top_k = 2},
        {.pick_row = pick_row.data(), .weight = weight.data(), .y = y.data(), .tokens = 1}, 1);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_TRUE(y[i] == before[i] || (std::isnan(y[i]) && std::isnan(before[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace switchyard::kernels
