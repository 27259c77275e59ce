// SPDX-License-Identifier: Apache-2.0
// What the sink of routings sees: every token of every step once, with its request and topic; the same sums as the
// statistics; nothing of a step that failed; and no allocation in a warm step.
#include "engine/recorder.h"

#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "engine/allocation_count.h"
#include "engine/fake_model.h"
#include "engine/loop.h"

namespace switchyard::engine {
namespace {

PoolOptions one_thread() {
  PoolOptions options;
  options.num_threads = 1;
  options.pin = false;
  return options;
}

/// A loop on the scripted model that records.
struct Recorded {
  Recorded(RoutingSink sink, RoutingDetail detail)
      : model(64, 4, 16, 4),
        tokenizer(*text::open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo")),
        pool(one_thread()),
        loop(model, *tokenizer, options(std::move(sink), detail), pool, tracer, metrics) {}

  static LoopOptions options(RoutingSink sink, RoutingDetail detail) {
    LoopOptions options;
    options.limits = {
        .max_sequences = 4, .max_step_tokens = 16, .block_tokens = 4, .num_blocks = 64};
    options.max_model_len = 200;
    options.vocab = FakeModel::kVocab;
    options.experts.assign(FakeModel::kMoeLayers, FakeModel::kExperts);
    options.routing_sink = std::move(sink);
    options.routing_detail = detail;
    return options;
  }

  RequestId submit(std::vector<int32_t> prompt, int max_tokens, std::string topic) {
    Request request;
    request.prompt_tokens = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.topic = std::move(topic);
    auto id = loop.submit(
        std::move(request), [](const Event&) {}, *loop.reserve());
    EXPECT_TRUE(id.ok());
    return id.ok() ? *id : 0;
  }

  FakeModel model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  Pool pool;
  Tracer tracer;
  MetricRegistry metrics;
  EngineLoop loop;
};

/// A copy of what one step said.
struct Seen {
  StepStage stage = StepStage::prefill;
  int64_t tokens = 0;
  std::vector<RequestId> requests;
  std::vector<std::string> topics;
  std::vector<int> first_positions, counts;
  std::vector<std::vector<int32_t>> demand, picks;  // [MoE layers]
  std::vector<std::vector<float>> weights;
};

template <class T>
std::vector<T> copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

Seen copy_of(const RoutedStep& step) {
  Seen seen;
  seen.stage = step.stage;
  seen.tokens = step.tokens;
  for (const RoutedSequence& sequence : step.sequences) {
    seen.requests.push_back(sequence.request);
    seen.topics.emplace_back(sequence.topic);
    seen.first_positions.push_back(sequence.first_position);
    seen.counts.push_back(sequence.tokens);
  }
  for (const RoutedLayer& layer : step.layers) {
    seen.demand.push_back(copy(layer.demand));
    seen.picks.push_back(copy(layer.picks));
    seen.weights.push_back(copy(layer.weights));
  }
  return seen;
}

std::vector<int32_t> histogram(const std::vector<int32_t>& picks) {
  std::vector<int32_t> counts(FakeModel::kExperts);
  for (const int32_t expert : picks) ++counts[static_cast<size_t>(expert)];
  return counts;
}

TEST(Recorder, SeesEveryTokenOnceWithItsRequestAndTopic) {
  std::vector<Seen> steps;
  Recorded world([&](const RoutedStep& step) { steps.push_back(copy_of(step)); },
                 RoutingDetail::picks);
  std::vector<int32_t> prompt(20);
  std::iota(prompt.begin(), prompt.end(), 300);
  const RequestId german = world.submit(prompt, 3, "german");
  const RequestId plain = world.submit({301, 302}, 2, "");
  while (world.loop.turn()) {
  }
  std::map<RequestId, int> tokens;
  for (const Seen& step : steps) {
    EXPECT_EQ(std::accumulate(step.counts.begin(), step.counts.end(), 0), step.tokens);
    for (size_t i = 0; i < step.requests.size(); ++i) {
      EXPECT_EQ(step.first_positions[i], tokens[step.requests[i]]) << "tokens come in order";
      EXPECT_EQ(step.topics[i], step.requests[i] == german ? "german" : "");
      tokens[step.requests[i]] += step.counts[i];
    }
    ASSERT_EQ(step.demand.size(), static_cast<size_t>(FakeModel::kMoeLayers));
    for (size_t layer = 0; layer < step.demand.size(); ++layer) {
      EXPECT_EQ(step.picks[layer].size(), static_cast<size_t>(step.tokens * FakeModel::kTopK));
      EXPECT_EQ(step.weights[layer].size(), step.picks[layer].size());
      EXPECT_EQ(histogram(step.picks[layer]), step.demand[layer]);
    }
  }
  // The last token of an answer is never an input.
  EXPECT_EQ(tokens, (std::map<RequestId, int>{{german, 22}, {plain, 3}}));
  EXPECT_EQ(steps.front().stage, StepStage::prefill);
  EXPECT_EQ(steps[1].stage, StepStage::prefill);  // the rest of one prompt, and the other
  EXPECT_EQ(steps.back().stage, StepStage::decode);
  // The layers of the scripted model differ, so a layer that was kept too short would show.
  EXPECT_NE(steps[0].picks[0], steps[0].picks[1]);
}

TEST(Recorder, AddsUpToTheStatistics) {
  std::vector<std::vector<uint64_t>> sums(FakeModel::kMoeLayers,
                                          std::vector<uint64_t>(FakeModel::kExperts));
  Recorded world(
      [&](const RoutedStep& step) {
        for (size_t layer = 0; layer < step.layers.size(); ++layer) {
          EXPECT_TRUE(step.layers[layer].picks.empty() && step.layers[layer].weights.empty());
          for (size_t e = 0; e < sums[layer].size(); ++e)
            sums[layer][e] += static_cast<uint64_t>(step.layers[layer].demand[e]);
        }
      },
      RoutingDetail::counts);
  for (int32_t i = 0; i < 7; ++i) world.submit({300 + i, 310, 320 + i}, 5, "t");
  while (world.loop.turn()) {
  }
  EXPECT_EQ(sums, world.loop.statistics().read().load);
}

TEST(Recorder, KeepsSilentAboutAStepThatFailed) {
  int steps = 0;
  Recorded world([&](const RoutedStep&) { ++steps; }, RoutingDetail::counts);
  world.model.failing_step = 1;
  world.submit({300}, 5, "");
  while (world.loop.turn()) {
  }
  EXPECT_EQ(world.model.steps(), 2);
  EXPECT_EQ(steps, 1);
}

TEST(Recorder, AWarmStepAllocatesNothing) {
  int64_t tokens = 0;
  Recorded world([&](const RoutedStep& step) { tokens += step.tokens; }, RoutingDetail::picks);
  world.submit({300, 301, 302}, 60, "a topic that is too long for the small string");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.loop.turn());
  const uint64_t before = allocations_of_this_thread();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(world.loop.turn());
  EXPECT_EQ(allocations_of_this_thread() - before, 0u);
  EXPECT_EQ(tokens, 3 + 39);
}

}  // namespace
}  // namespace switchyard::engine
