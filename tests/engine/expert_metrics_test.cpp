// SPDX-License-Identifier: Apache-2.0
// How far the metrics go into routing: sums, layers, experts, the busiest experts; and time by phase and kind of step.
#include <string>

#include <gtest/gtest.h>

#include "switchyard/engine.h"

#include "base/exposition.h"

namespace switchyard {
namespace {

std::unique_ptr<Engine> open_demo(MetricDetail detail, int top = 8) {
  EngineOptions options;
  options.model = std::string(SWITCHYARD_SOURCE_DIR) + "/models/demo";
  options.threads = 1;
  options.max_sequences = 2;
  options.max_model_len = 128;
  options.profile = true;
  options.metric_detail = detail;
  options.metric_top_experts = top;
  auto opened = Engine::open(options);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? *std::move(opened) : nullptr;
}

Exposition metrics_after_a_request(Engine& engine) {
  Request request;
  request.prompt = "The kernel provides";
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 6;
  EXPECT_TRUE(engine.submit(std::move(request), [](const Event&) {}).ok());
  engine.wait_idle();
  auto read = Exposition::parse(engine.metrics_text());
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
  return read.ok() ? *std::move(read) : Exposition();
}

constexpr const char* kRouted = "switchyard_routed_assignments_total";
constexpr const char* kOfExpert = "switchyard_expert_assignments_total";

TEST(MetricDetail, OffSumsTheLayers) {
  const auto engine = open_demo(MetricDetail::off);
  const Exposition metrics = metrics_after_a_request(*engine);
  EXPECT_EQ(metrics.find(kRouted)->samples.size(), 3U) << "one for each kind of step";
  EXPECT_EQ(metrics.find("switchyard_layer_load_imbalance_ratio"), nullptr);
  EXPECT_EQ(metrics.find(kOfExpert), nullptr);
  uint64_t picks = 0;
  for (const auto& layer : engine->stats().load)
    for (const uint64_t of_expert : layer) picks += of_expert;
  EXPECT_GT(picks, 0U);
  EXPECT_DOUBLE_EQ(metrics.sum(kRouted), static_cast<double>(picks));
}

TEST(MetricDetail, ExpertsAreThoseOfTheStatistics) {
  const auto engine = open_demo(MetricDetail::expert);
  const Exposition metrics = metrics_after_a_request(*engine);
  const auto load = engine->stats().load;
  ASSERT_EQ(metrics.find(kOfExpert)->samples.size(), load.size() * load[0].size());
  for (size_t l = 0; l < load.size(); ++l)
    for (size_t e = 0; e < load[l].size(); ++e)
      EXPECT_DOUBLE_EQ(
          metrics.sum(kOfExpert, {{"layer", std::to_string(l)}, {"expert", std::to_string(e)}}),
          static_cast<double>(load[l][e]));
}

TEST(MetricDetail, TopHasTheBusiestOfEachLayer) {
  const auto engine = open_demo(MetricDetail::top, 3);
  const Exposition metrics = metrics_after_a_request(*engine);
  const auto load = engine->stats().load;
  ASSERT_EQ(metrics.find(kOfExpert)->samples.size(), load.size() * 3);
  for (size_t l = 0; l < load.size(); ++l) {
    auto sorted = load[l];
    std::sort(sorted.rbegin(), sorted.rend());
    EXPECT_DOUBLE_EQ(metrics.sum(kOfExpert, {{"layer", std::to_string(l)}}),
                     static_cast<double>(sorted[0] + sorted[1] + sorted[2]));
  }
}

TEST(MetricDetail, PhasesByKindOfStepSumToThoseOfTheEngine) {
  const auto engine = open_demo(MetricDetail::layer);
  const Exposition metrics = metrics_after_a_request(*engine);
  constexpr const char* kPhases = "switchyard_phase_seconds_total";
  for (const auto& [phase, seconds] : engine->stats().phase_s)
    EXPECT_NEAR(metrics.sum(kPhases, {{"phase", phase}}), seconds, 1e-9) << phase;
  EXPECT_GT(metrics.sum(kPhases, {{"phase", "gemm_up"}, {"stage", "prefill"}}), 0);
  EXPECT_GT(metrics.sum(kPhases, {{"phase", "gemm_up"}, {"stage", "decode"}}), 0);
  EXPECT_EQ(metrics.sum(kPhases, {{"stage", "mixed"}}), 0);
  engine->reset_stats();
  const auto again = Exposition::parse(engine->metrics_text());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->sum(kPhases), metrics.sum(kPhases)) << "counters never go down";
}

}  // namespace
}  // namespace switchyard
