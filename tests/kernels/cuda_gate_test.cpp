// SPDX-License-Identifier: Apache-2.0
// The norm before the experts and the gate's logits on CUDA, each way to them, against sums in f64.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include <gtest/gtest.h>

#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/gate_entries.h"
#include "kernels/cuda_run.h"
#include "kernels/entry_run.h"
#include "tensor/compare.h"

namespace switchyard::kernels {
namespace {

using cases::OnDevice;

CudaStreamHandle queue() { return cases::cuda_stream()->handle(); }

double wide(float value) { return static_cast<double>(value); }

void expect_near(const std::vector<float>& found, const std::vector<float>& expected,
                 double limit) {
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, limit) << c.text();
}

TEST(CudaGate, NormAndGateInOneAreTheTwo) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const int tokens : {1, 2, 7, 16}) {
    for (const auto& [experts, width] :
         {std::pair<int, int64_t>{1, 4}, {8, 332}, {60, 1028}, {128, 2048}, {5, 4100}}) {
      const OnDevice x(cases::random_values(tokens * width, 1, 3));
      const OnDevice weight(cases::random_values(width, 3, 2));
      const OnDevice gate(cases::random_values(experts * width, 4, 1));
      const OnDevice y(nullptr, tokens * width * 4), y_one(nullptr, tokens * width * 4);
      const OnDevice two(nullptr, tokens * experts * 4), one(nullptr, tokens * experts * 4);
      cuda::NormRows norm{.x = x.as<float>(),
                          .weight = weight.as<float>(),
                          .tokens = tokens,
                          .width = width,
                          .y_f32 = y.as<float>()};
      cuda::norm_rows(norm, queue());
      cuda::dense_plain({.x = y.data(),
                         .weight = gate.data(),
                         .dtype = DType::f32,
                         .tokens = tokens,
                         .n = experts,
                         .k = width,
                         .y = two.as<float>()},
                        queue());
      norm.y_f32 = y_one.as<float>();
      const cuda::NormRoute both{.norm = norm,
                                 .gate = gate.as<float>(),
                                 .num_experts = experts,
                                 .logits = one.as<float>()};
      ASSERT_TRUE(cuda::norm_route_accepts(both));
      cuda::norm_route(both, queue());
      expect_near(y_one.read<float>(tokens * width), y.read<float>(tokens * width), 1e-6);
      expect_near(one.read<float>(tokens * experts), two.read<float>(tokens * experts), 2e-6);
    }
  }
}

// A norm and a gate with its logits in f64.
struct GateCase {
  GateCase(int64_t num_tokens, int num_experts, int64_t row_width, uint32_t seed = 0)
      : tokens(num_tokens),
        experts(num_experts),
        width(row_width),
        x(cases::random_values(tokens * width, 8 * seed + 1, 3)),
        weight(cases::random_values(width, 8 * seed + 3, 2)),
        gate(cases::random_values(experts * width, 8 * seed + 4, 1)) {}

  std::vector<float> expected_rows() const {
    std::vector<float> rows(x.size());
    for (int64_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i)
        squares += wide(x[t * width + i]) * wide(x[t * width + i]);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-6);
      for (int64_t i = 0; i < width; ++i) {
        rows[t * width + i] = static_cast<float>(wide(x[t * width + i]) * scale * wide(weight[i]));
      }
    }
    return rows;
  }
  std::vector<float> expected_logits() const {
    const std::vector<float> rows = expected_rows();
    std::vector<float> logits(static_cast<size_t>(tokens * experts));
    for (int64_t i = 0; i < tokens * experts; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k) {
        sum += wide(rows[i / experts * width + k]) * wide(gate[i % experts * width + k]);
      }
      logits[i] = static_cast<float>(sum);
    }
    return logits;
  }
  // The sum of the sizes of a logit's terms: what errors of factors are measured by.
  std::vector<double> term_sizes() const {
    const std::vector<float> rows = expected_rows();
    std::vector<double> sizes(static_cast<size_t>(tokens * experts));
    for (int64_t i = 0; i < tokens * experts; ++i) {
      for (int64_t k = 0; k < width; ++k) {
        sizes[i] +=
            std::abs(wide(rows[i / experts * width + k]) * wide(gate[i % experts * width + k]));
      }
    }
    return sizes;
  }
  cuda::NormRows norm(const OnDevice& dx, const OnDevice& dw) const {
    return {.x = dx.as<float>(), .weight = dw.as<float>(), .tokens = tokens, .width = width};
  }

  int64_t tokens;
  int experts;
  int64_t width;
  std::vector<float> x, weight, gate;
};

// Two parts of bf16 leave out at most 2^-18 of a factor, and the product of both low parts is left out.
void expect_split_sums(const std::vector<float>& found, const GateCase& c) {
  const std::vector<float> expected = c.expected_logits();
  const std::vector<double> sizes = c.term_sizes();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 0x3p-18 * sizes[i]) << "logit " << i;
  }
}

TEST(CudaGate, NormAndGateOnTensorCoresAreTheSums) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const int64_t tokens : {1, 17, 31, 64, 100, 129}) {
    for (const auto& [experts, width] :
         {std::pair<int, int64_t>{1, 4}, {8, 332}, {60, 1028}, {128, 2048}, {5, 4100}}) {
      const GateCase c(tokens, experts, width);
      const OnDevice x(c.x), weight(c.weight), gate(c.gate), y(nullptr, tokens * width * 4),
          rows(nullptr, tokens * width * 2), logits(nullptr, tokens * experts * 4);
      cuda::NormRoute both{.norm = c.norm(x, weight),
                           .gate = gate.as<float>(),
                           .num_experts = experts,
                           .logits = logits.as<float>()};
      both.norm.y_f32 = y.as<float>();
      both.norm.y_bf16 = rows.data();
      ASSERT_TRUE(cuda::norm_gate_accepts(both));
      cuda::norm_gate(both, queue());
      expect_near(y.read<float>(tokens * width), c.expected_rows(), 1e-6);
      expect_near(rows.read_floats(tokens * width, DType::bf16), c.expected_rows(), 4e-3);
      expect_split_sums(logits.read<float>(tokens * experts), c);
    }
  }
}

TEST(CudaGate, ALogitDoesNotDependOnTheOthers) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  constexpr int64_t kTokens = 61, kWidth = 2304;
  constexpr int kExperts = 40;
  const GateCase c(kTokens, kExperts, kWidth);
  const OnDevice x(c.x), weight(c.weight), gate(c.gate);
  const auto logits_of = [&](int64_t first, int64_t count) {
    const OnDevice logits(nullptr, count * kExperts * 4);
    cuda::NormRoute both{.norm = c.norm(x, weight),
                         .gate = gate.as<float>(),
                         .num_experts = kExperts,
                         .logits = logits.as<float>()};
    both.norm.x += first * kWidth;
    both.norm.tokens = count;
    cuda::norm_gate(both, queue());
    return logits.read<float>(count * kExperts);
  };
  const std::vector<float> all = logits_of(0, kTokens);
  for (const int64_t first : {0, 3, 60}) {
    const std::vector<float> one = logits_of(first, 1);
    const auto from = all.begin() + first * kExperts;
    EXPECT_EQ(one, std::vector<float>(from, from + kExperts)) << first;
  }
}

RouteRule renormalized(int experts, int picks) {
  RouteRule rule;
  rule.experts = experts;
  rule.top_k = picks;
  rule.weigh = RouteRule::Weigh::renormalize;
  return rule;
}

// Gates in parts, and what norm_gate_parts and MoeRoute make of them.
struct PartsOnDevice {
  PartsOnDevice(const GateCase& c, bool exact, const RouteRule& rule)
      : tokens(c.tokens),
        top_k(rule.top_k),
        problem{.rule = rule, .max_tokens = c.tokens},
        x(c.x),
        weight(c.weight),
        gate(c.gate),
        high(nullptr, c.experts * c.width * 4),
        low(nullptr, c.experts * c.width * 2),
        any(std::vector<int32_t>{0}),
        unusable(std::vector<int32_t>{0}),
        y(nullptr, tokens * c.width * 4),
        rows(nullptr, tokens * c.width * 2),
        logits(nullptr, tokens * c.experts * 4),
        expert(nullptr, tokens * top_k * 4),
        pick_weight(nullptr, tokens * top_k * 4),
        pick_row(nullptr, tokens * top_k * 4),
        row_token(nullptr, tokens * top_k * 4),
        slot_offset(nullptr, (c.experts + 1) * 4),
        hit(nullptr, c.experts * 4),
        num_hit(nullptr, 4),
        words(std::vector<uint64_t>(cuda::GateScores::kWords)),
        workspace(nullptr, MoeRoute::workspace_bytes(problem)) {
    if (exact) cuda::round_to_bf16(gate.as<float>(), c.experts * c.width, queue());
    cuda::split_gate({.gate = gate.as<float>(),
                      .num_experts = c.experts,
                      .width = c.width,
                      .high = high.data(),
                      .low = low.data(),
                      .any_low = any.as<int32_t>()},
                     queue());
    // The launch reads its first gate rows before what is in front of it has ended: they are a model's, and there long before.
    EXPECT_EQ(any.read<int32_t>(1)[0], exact ? 0 : 1);
    args = {.norm = c.norm(x, weight),
            .gate_high = high.data(),
            .gate_low = exact ? nullptr : low.data(),
            .num_experts = c.experts,
            .logits = logits.as<float>(),
            .scores = {}};
    args.norm.y_f32 = y.as<float>();
    args.norm.y_bf16 = rows.data();
  }

  DeviceRouting routing() const {
    return {expert.as<int32_t>(),    pick_weight.as<float>(),   pick_row.as<int32_t>(),
            row_token.as<int32_t>(), slot_offset.as<int32_t>(), hit.as<int32_t>(),
            num_hit.as<int32_t>(),   unusable.as<int32_t>()};
  }
  void route_in_one(const OnDevice& by_words) const {
    cuda::NormGateParts call = args;
    call.scores = {.rule = problem.rule, .routing = routing(), .words = by_words.as<uint64_t>()};
    cuda::norm_gate_parts(call, queue());
  }
  void route_in_two() const {
    cuda::norm_gate_parts(args, queue());
    MoeRoute::run(problem,
                  {.logits = logits.as<float>(),
                   .tokens = tokens,
                   .routing = routing(),
                   .workspace = workspace.data()},
                  queue());
  }
  std::vector<std::vector<float>> routed(bool in_one) const {
    if (in_one) route_in_one(words);
    if (!in_one) route_in_two();
    return result();
  }
  // Everything that routing gives: weights, picks, rows, offsets.
  std::vector<std::vector<float>> result() const {
    std::vector<std::vector<float>> all{pick_weight.read<float>(tokens * top_k)};
    for (const auto& [array, count] : {std::pair{&expert, tokens * top_k},
                                       {&pick_row, tokens * top_k},
                                       {&row_token, tokens * top_k},
                                       {&slot_offset, int64_t{problem.rule.experts} + 1},
                                       {&num_hit, int64_t{1}}}) {
      const std::vector<int32_t> values = array->read<int32_t>(count);
      all.emplace_back(values.begin(), values.end());
    }
    const std::vector<int32_t> hits = hit.read<int32_t>(num_hit.read<int32_t>(1)[0]);
    all.emplace_back(hits.begin(), hits.end());
    return all;
  }

  int64_t tokens, top_k;
  MoeRoute::Problem problem;
  cuda::NormGateParts args;
  OnDevice x, weight, gate, high, low, any, unusable, y, rows, logits, expert, pick_weight,
      pick_row, row_token, slot_offset, hit, num_hit, words, workspace;
};

bool runs_in_parts() {
  cuda::NormGateParts args;
  args.norm.width = 64;
  args.num_experts = 8;
  return cuda::norm_gate_parts_accepts(args);
}

void expect_picks_of_the_sums(int64_t tokens, int experts, int64_t width, bool exact) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens, " << experts << " x " << width);
  GateCase c(tokens, experts, width);
  const RouteRule rule = renormalized(experts, std::min(experts, 8));
  const PartsOnDevice parts(c, exact, rule);
  ASSERT_TRUE(cuda::norm_gate_parts_accepts(parts.args));
  c.gate = parts.gate.read<float>(experts * width);
  const auto routed = parts.routed(false);
  expect_near(parts.y.read<float>(tokens * width), c.expected_rows(), 1e-6);
  expect_near(parts.rows.read_floats(tokens * width, DType::bf16), c.expected_rows(), 4e-3);
  const std::vector<float> logits = parts.logits.read<float>(tokens * experts);
  expect_split_sums(logits, c);
  const PartsOnDevice one(c, exact, rule);
  for (int launch = 0; launch < 3; ++launch) EXPECT_EQ(one.routed(true), routed);
  EXPECT_EQ(one.logits.read<float>(tokens * experts), logits);
  EXPECT_EQ(one.unusable.read<int32_t>(1)[0], 0);
}

// Rows without a score first, second and last; one of zeros; one whose squares overflow. Of two experts that follow each other each
// has the logits of the other.
GateCase with_odd_rows(GateCase c) {
  c.x[static_cast<size_t>(c.width - 1)] = NAN;
  c.x[static_cast<size_t>(c.width)] = INFINITY;
  c.x[static_cast<size_t>((c.tokens - 1) * c.width + c.width / 2)] = -INFINITY;
  std::fill_n(c.x.begin() + 2 * c.width, c.width, 0.0f);
  std::fill_n(c.x.begin() + 3 * c.width, c.width, 1e30f);
  for (int e = 1; e < c.experts; e += 2) {
    std::copy_n(c.gate.begin() + (e - 1) * c.width, c.width, c.gate.begin() + e * c.width);
  }
  return c;
}

void expect_picks_of_odd_rows(int64_t tokens, int64_t width, const RouteRule& rule) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens, " << rule.top_k << " of " << rule.experts);
  const GateCase c = with_odd_rows(GateCase(tokens, rule.experts, width));
  const PartsOnDevice two(c, false, rule), one(c, false, rule);
  ASSERT_EQ(MoeRoute::refusal(two.problem), nullptr);
  ASSERT_TRUE(cuda::norm_gate_parts_accepts(two.args));
  const auto routed = two.routed(false);
  for (int launch = 0; launch < 3; ++launch) EXPECT_EQ(one.routed(true), routed);
  EXPECT_TRUE(cases::same_bits(one.logits.read<float>(tokens * rule.experts),
                               two.logits.read<float>(tokens * rule.experts)));
  EXPECT_EQ(two.unusable.read<int32_t>(1)[0], 3);
  EXPECT_EQ(one.unusable.read<int32_t>(1)[0], 3 * 3);
  const std::vector<float>&weight = routed[0], &expert = routed[1];
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{2}, tokens - 1}) {
    for (int k = 0; k < rule.top_k; ++k) {
      const auto at = static_cast<size_t>(t * rule.top_k + k);
      EXPECT_EQ(expert[at], static_cast<float>(k)) << "token " << t;
      EXPECT_EQ(weight[at] == 0, t != 2) << "token " << t;
    }
  }
}

std::vector<RouteRule> many_rules() {
  using Score = RouteRule::Score;
  using Weigh = RouteRule::Weigh;
  using GroupScore = RouteRule::GroupScore;
  return {
      {60, 8, Score::softmax, Weigh::raw},
      {64, 6, Score::softmax, Weigh::raw, GroupScore::max, 1, 1, 0, 16},
      {17, 4, Score::softmax, Weigh::softmax_after_top_k},
      {5, 5, Score::softmax, Weigh::renormalize},
      {64, 1, Score::softmax, Weigh::raw},
      {128, 9, Score::softmax, Weigh::renormalize},
      {256, 32, Score::softmax, Weigh::renormalize},
      {64, 4, Score::softmax, Weigh::renormalize, GroupScore::max, 1, 1, 0.5f},
      {64, 6, Score::sigmoid, Weigh::raw},
      {128, 12, Score::sigmoid, Weigh::renormalize},
      {200, 13, Score::sqrt_softplus, Weigh::renormalize},
      {160, 6, Score::softmax, Weigh::raw, GroupScore::max, 8, 3, 0, 16},
      {256, 8, Score::sigmoid, Weigh::renormalize, GroupScore::sum_top_2, 8, 4, 1e-20f, 2.5f},
  };
}

// What scripts/gpu_sanitize.txt runs.
TEST(CudaGate, SmallNormGateAndPicksInOneLaunch) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  expect_picks_of_the_sums(1, 5, 32, true);
  expect_picks_of_the_sums(43, 17, 1024, false);
  expect_picks_of_the_sums(85, 160, 288, false);
  RouteRule groups = renormalized(20, 9);
  groups.num_groups = 4;
  groups.top_groups = 3;
  expect_picks_of_odd_rows(43, 32, groups);
}

TEST(CudaGate, NormGateAndPicksInOneLaunch) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  for (const int64_t tokens : {1, 39, 41, 100, 257}) {
    for (const auto& [experts, width] : {std::pair<int, int64_t>{8, 4096},
                                         {5, 32},
                                         {17, 1024},
                                         {64, 2048},
                                         {60, 352},
                                         {128, 2048},
                                         {160, 288},
                                         {256, 7168}}) {
      for (const bool exact : {true, false})
        expect_picks_of_the_sums(tokens, experts, width, exact);
    }
  }
}

TEST(CudaGate, PicksOfOddRowsByManyRules) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  for (const int64_t tokens : {41, 257}) {
    for (const RouteRule& rule : many_rules()) expect_picks_of_odd_rows(tokens, 288, rule);
  }
}

// What a launch left in the words is not taken for what the next one says.
TEST(CudaGate, LaunchesThatFollowEachOtherShareTheWords) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  std::deque<PartsOnDevice> launches;
  std::vector<std::vector<std::vector<float>>> expected;
  for (const auto& [tokens, experts, picks] : {std::array<int, 3>{257, 128, 8},
                                               {41, 128, 6},
                                               {500, 128, 8},
                                               {17, 17, 1},
                                               {500, 64, 6},
                                               {257, 200, 9},
                                               {41, 256, 32},
                                               {257, 60, 8},
                                               {17, 128, 9},
                                               {500, 128, 1}}) {
    const GateCase c(tokens, experts, 288, static_cast<uint32_t>(launches.size()));
    const RouteRule rule = renormalized(experts, picks);
    expected.push_back(PartsOnDevice(c, false, rule).routed(false));
    ASSERT_TRUE(cuda::norm_gate_parts_accepts(launches.emplace_back(c, false, rule).args));
  }
  const OnDevice words(std::vector<uint64_t>(cuda::GateScores::kWords));
  for (int round = 0; round < 10; ++round) {
    for (const PartsOnDevice& launch : launches) launch.route_in_one(words);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(launches[i].result(), expected[i]) << "launch " << i << " of round " << round;
    }
  }
}

// Weights that do not fill what its blocks ask for.
TEST(CudaGate, WeightsThatAreAskedForChangeNothing) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  const GateCase c(500, 64, 288);
  const PartsOnDevice plain(c, false, renormalized(64, 8));
  PartsOnDevice asks(c, false, renormalized(64, 8));
  constexpr int64_t kBytes = 1'000'000;
  const OnDevice weights(nullptr, kBytes);
  asks.args.next = weights.data();
  asks.args.next_bytes = kBytes;
  const auto expected = plain.routed(true);
  for (int launch = 0; launch < 3; ++launch) EXPECT_EQ(asks.routed(true), expected);
}

TEST(CudaGate, PicksOfAsManyTokensAsFit) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  for (const int experts : {60, 128, 200}) {
    cuda::NormGateParts args;
    args.norm.width = 256;
    args.num_experts = experts;
    for (args.norm.tokens = 641; !cuda::norm_gate_parts_accepts(args);) --args.norm.tokens;
    expect_picks_of_the_sums(args.norm.tokens, experts, 256, false);
  }
}

// Alone, and in a call.
TEST(CudaGate, ALogitInPartsDoesNotDependOnTheOthers) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!runs_in_parts()) GTEST_SKIP() << "for sm_90 alone";
  constexpr int64_t kTokens = 77, kWidth = 2304;
  constexpr int kExperts = 40;
  const GateCase c(kTokens, kExperts, kWidth);
  const PartsOnDevice parts(c, false, renormalized(kExperts, 4));
  cuda::norm_gate_parts(parts.args, queue());
  const std::vector<float> all = parts.logits.read<float>(kTokens * kExperts);
  for (const int64_t first : {0, 5, 76}) {
    cuda::NormGateParts one = parts.args;
    one.norm.x += first * kWidth;
    one.norm.tokens = 1;
    cuda::norm_gate_parts(one, queue());
    const auto from = all.begin() + first * kExperts;
    EXPECT_EQ(parts.logits.read<float>(kExperts), std::vector<float>(from, from + kExperts));
  }
}

TEST(CudaGate, RowsAndGatesInPartsGiveTheSums) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  std::string note;
  cuda::DenseProducts products = cuda::DenseProducts::open(false, note);
  for (const int64_t tokens : {1, 64, 300}) {
    for (const auto& [experts, width] : {std::pair<int, int64_t>{8, 334}, {128, 2048}}) {
      const int64_t room = cuda::padded_tokens(tokens);
      const GateCase c(tokens, experts, width);
      const OnDevice x(c.x), weight(c.weight), gate(c.gate), split(nullptr, room * width * 4),
          rows(nullptr, room * width * 2), logits(nullptr, room * experts * 4),
          high(nullptr, experts * width * 4), low(nullptr, experts * width * 2),
          any(std::vector<int32_t>{0});
      cuda::NormRows norm = c.norm(x, weight);
      norm.y_bf16 = rows.data();
      norm.y_split = split.data();
      cuda::norm_rows(norm, queue());
      cuda::split_gate({.gate = gate.as<float>(),
                        .num_experts = experts,
                        .width = width,
                        .high = high.data(),
                        .low = low.data(),
                        .any_low = any.as<int32_t>()},
                       queue());
      cuda::Dense product{.x = split.data(),
                          .weight = high.data(),
                          .tokens = tokens,
                          .n = experts,
                          .k = 2 * width,
                          .y = logits.as<float>()};
      products.run(product, queue());
      product.x = rows.data();
      product.weight = low.data();
      product.k = width;
      product.accumulate = true;
      products.run(product, queue());
      EXPECT_EQ(any.read<int32_t>(1)[0], 1);
      expect_split_sums(logits.read<float>(tokens * experts), c);
      cuda::round_to_bf16(gate.as<float>(), experts * width, queue());
      const OnDevice none(std::vector<int32_t>{0});
      cuda::split_gate({.gate = gate.as<float>(),
                        .num_experts = experts,
                        .width = width,
                        .high = high.data(),
                        .low = low.data(),
                        .any_low = none.as<int32_t>()},
                       queue());
      EXPECT_EQ(none.read<int32_t>(1)[0], 0);
    }
  }
}

}  // namespace
}  // namespace switchyard::kernels
