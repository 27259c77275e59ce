// SPDX-License-Identifier: Apache-2.0
// The baselines against the grouped execution of the same routing, dropless and with drops: they
// may be slow, but they must be right.
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "moe/baseline/padded.h"
#include "moe/baseline/routed_layer.h"
#include "moe/capacity.h"
#include "moe/workload/draw.h"
#include "moe/workload/popularity.h"
#include "tensor/compare.h"

namespace switchyard::moe {
namespace {

constexpr int64_t kWidth = 48, kFfn = 40;
constexpr int kExperts = 11, kTopK = 3;

/// A routing with its arrays, limited to a capacity.
struct Given {
  std::vector<int32_t> expert, load;
  std::vector<float> weight;
  Routing routing;

  Given(std::string_view popularity, int64_t tokens, uint32_t step, float factor, Arena& arena,
        const Stream& stream)
      : load(kExperts, 0) {
    const auto weights = Popularity::parse(popularity).value().weights(kExperts, 5);
    expert = draw_weighted(weights, tokens, kTopK, 5, step);
    for (const int32_t e : expert) ++load[e];
    std::mt19937 random(step);
    for (size_t i = 0; i < expert.size(); ++i) {
      weight.push_back(std::uniform_real_distribution<float>(0, 1)(random));
    }
    routing = {TensorView::of(expert.data(), {tokens, kTopK}),
               TensorView::of(weight.data(), {tokens, kTopK}),
               TensorView::of(load.data(), {kExperts}),
               TensorView::of(load.data(), {kExperts}),
               {}};
    RouterSpec spec{.num_experts = kExperts, .top_k = kTopK};
    spec.capacity_factor = factor;
    spec.overflow = factor > 0 ? Overflow::drop_lowest : Overflow::none;
    limit_load(spec, routing, {stream, arena});
    const auto* kept = routing.load.as<int32_t>();
    largest = *std::max_element(kept, kept + kExperts);
  }
  int64_t largest = 0;
};

std::vector<float> random_values(std::mt19937& random, int64_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = to_float(to_bf16(normal(random)));
  return values;
}

RoutedLayer make_layer(DType dtype, int64_t max_tokens, int64_t max_capacity) {
  RoutedLayer layer = RoutedLayer::create({.num_slots = kExperts,
                                           .top_k = kTopK,
                                           .width = kWidth,
                                           .ffn_width = kFfn,
                                           .max_tokens = max_tokens,
                                           .max_capacity = max_capacity,
                                           .naive = true,
                                           .weight = dtype})
                          .value();
  std::mt19937 random(3);
  for (int e = 0; e < kExperts; ++e) {
    const auto gate = random_values(random, kFfn * kWidth, 0.2f);
    const auto up = random_values(random, kFfn * kWidth, 0.2f);
    const auto down = random_values(random, kFfn * kWidth, 0.2f);
    layer.pack(e, TensorView::of(gate.data(), {kFfn, kWidth}),
               TensorView::of(up.data(), {kFfn, kWidth}),
               TensorView::of(down.data(), {kWidth, kFfn}));
  }
  return layer;
}

class Baseline : public testing::TestWithParam<std::tuple<int, std::string_view, float, DType>> {};

TEST_P(Baseline, GivesWhatTheGroupedExecutionGives) {
  const auto [tokens, popularity, factor, dtype] = GetParam();
  Pool pool({.num_threads = 2, .pin = false});
  const Stream stream({}, pool);
  Arena routing_arena = Arena::create(1 << 20).value();
  const Given given(popularity, tokens, 1, factor, routing_arena, stream);
  if (factor > 0 && factor < 1 && tokens > 1) {
    ASSERT_GT(given.routing.counts.dropped, 0);
  }
  // One row more than the largest load: empty slots even for the hottest expert.
  const int64_t capacity = given.largest + 1;
  RoutedLayer layer = make_layer(dtype, tokens, capacity);
  Arena arena = Arena::create(layer.room(2)).value();
  std::mt19937 random(9);
  const std::vector<float> x = random_values(random, tokens * kWidth, 1);
  std::vector<std::vector<float>> y;
  for (const Execution execution : {Execution::grouped, Execution::naive, Execution::padded}) {
    y.push_back(x);  // the residual stream
    arena.reset();
    layer.forward(execution, x.data(), given.routing, capacity, y.back().data(), {stream, arena});
  }
  // The naive loop keeps its hidden rows in f32, where fused tiles may round them to bf16.
  const Comparison naive = compare(y[1], y[0]);
  EXPECT_LE(naive.relative_error, dtype == DType::f32 ? 1e-6 : 4e-3) << naive.text();
  const Comparison padded = compare(y[2], y[0]);
  EXPECT_LE(padded.relative_error, dtype == DType::f32 ? 1e-6 : 1e-6) << padded.text();
}

INSTANTIATE_TEST_SUITE_P(Loads, Baseline,
                         testing::Combine(testing::Values(1, 7, 65),
                                          testing::Values("uniform", "zipf:2"),
                                          testing::Values(0.0f, 0.4f, 1.25f),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(Baseline, SkipsPicksOfOtherRanks) {
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  Arena routing_arena = Arena::create(1 << 20).value();
  Given given("uniform", 9, 2, 0, routing_arena, stream);
  std::fill(given.expert.begin(), given.expert.end(), -1);
  std::fill(given.load.begin(), given.load.end(), 0);
  RoutedLayer layer = make_layer(DType::f32, 9, 1);
  Arena arena = Arena::create(layer.room(1)).value();
  std::mt19937 random(9);
  const std::vector<float> x = random_values(random, 9 * kWidth, 1);
  for (const Execution execution : {Execution::grouped, Execution::naive, Execution::padded}) {
    std::vector<float> y = x;
    arena.reset();
    layer.forward(execution, x.data(), given.routing, 1, y.data(), {stream, arena});
    EXPECT_EQ(y, x) << execution_name(execution);
  }
}

TEST(PaddedPlan, GivesEveryExpertTheSameRows) {
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  Arena routing_arena = Arena::create(1 << 20).value();
  const Given given("zipf:1", 40, 3, 1.0f, routing_arena, stream);
  const int64_t capacity = given.largest;
  Arena arena = Arena::create(plan_padded_room(40, kTopK, kExperts, capacity)).value();
  const DispatchPlan plan = plan_padded(given.routing, capacity, {stream, arena});
  EXPECT_EQ(plan.rows, kExperts * capacity);
  std::vector<int> picks_of_row(static_cast<size_t>(plan.rows), 0);
  for (size_t pick = 0; pick < given.expert.size(); ++pick) {
    const int32_t row = plan.pick_row.as<int32_t>()[pick];
    EXPECT_EQ(row < 0, given.expert[pick] < 0);
    if (row < 0) continue;
    EXPECT_EQ(row / capacity, given.expert[pick]);
    EXPECT_EQ(plan.row_token.as<int32_t>()[row], static_cast<int32_t>(pick) / kTopK);
    ++picks_of_row[static_cast<size_t>(row)];
  }
  for (int64_t r = 0; r < plan.rows; ++r) {
    EXPECT_EQ(picks_of_row[static_cast<size_t>(r)], plan.row_token.as<int32_t>()[r] < 0 ? 0 : 1);
  }
}

TEST(SiluMultiply, IsSiluTimesTheOther) {
  std::vector<float> g, u;
  for (float x = -120; x < 120; x += 0.0625f) g.push_back(x), u.push_back(1 + x / 240);
  g.push_back(0), u.push_back(3);
  std::vector<float> found = g;
  Pool pool({.num_threads = 2, .pin = false});
  silu_multiply(found.data(), u.data(), std::ssize(g), pool);
  for (size_t i = 0; i < g.size(); ++i) {
    const double wanted = double{g[i]} / (1 + std::exp(-double{g[i]})) * double{u[i]};
    EXPECT_NEAR(double{found[i]}, wanted, 1e-6 * std::abs(wanted) + 1e-30) << g[i];
  }
}

}  // namespace
}  // namespace switchyard::moe
