// SPDX-License-Identifier: Apache-2.0
// The loop on a scripted model: texts do not depend on who else runs, failures stay with their
// request, everything ends once, and a warm decoding step allocates nothing.
#include "engine/loop.h"

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/allocation_count.h"
#include "engine/loop_world.h"

namespace switchyard::engine {
namespace {

/// Eight requests of different lengths; every second one is sampled.
SamplingParams params_of(int i) {
  SamplingParams params = greedy(6 + 5 * i);
  if (i % 2 == 1) {
    params.temperature = 1.5f;
    params.top_p = 0.95f;
    params.seed = static_cast<uint64_t>(i);
    params.repetition_penalty = 1.2f;
  }
  return params;
}

Received run_alone(int i) {
  World world;
  Received received;
  world.submit(prompt_of(i, 3 + 7 * i), params_of(i), received);
  world.turn_until_idle();
  return received;
}

void expect_same_as_alone(const std::vector<Received>& received) {
  for (size_t i = 0; i < received.size(); ++i) {
    const Received alone = run_alone(static_cast<int>(i));
    EXPECT_EQ(received[i].tokens, alone.tokens) << "request " << i;
    EXPECT_EQ(received[i].text, alone.text) << "request " << i;
    EXPECT_EQ(received[i].finish(), alone.finish());
  }
}

TEST(Loop, EightStaggeredRequestsGiveTheSameTextAsAlone) {
  World world;
  std::vector<Received> received(8);
  for (int i = 0; i < 8; ++i) {
    world.submit(prompt_of(i, 3 + 7 * i), params_of(i), received[static_cast<size_t>(i)]);
    for (int turn = 0; turn < 3; ++turn) world.loop.turn();
  }
  world.turn_until_idle();
  expect_same_as_alone(received);
  EXPECT_LE(world.model.max_tokens_seen(), 16);
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
}

TEST(Loop, PreemptionUnderFewBlocksChangesNoText) {
  WorldShape shape;
  shape.num_blocks = 27;  // the largest request needs 24: 52 prompt and 41 new tokens
  World world(shape);
  std::vector<Received> received(8);
  for (int i = 0; i < 8; ++i)
    world.submit(prompt_of(i, 3 + 7 * i), params_of(i), received[static_cast<size_t>(i)]);
  world.turn_until_idle();
  EXPECT_GT(world.loop.counts().preemptions, 0u);
  expect_same_as_alone(received);
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  EXPECT_EQ(world.loop.statistics().read().preemptions, world.loop.counts().preemptions);
}

TEST(Loop, EventsComeInOrderAndTheLastOneSaysAll) {
  World world;
  Received received;
  const RequestId id = world.submit(prompt_of(1, 20), greedy(5), received);
  world.turn_until_idle();
  ASSERT_EQ(received.events.size(), 5u);
  for (size_t i = 0; i < received.events.size(); ++i) {
    const Event& event = received.events[i];
    EXPECT_EQ(event.id, id);
    EXPECT_EQ(event.tokens.size(), 1u);
    EXPECT_EQ(event.finish == FinishReason::none, i + 1 < received.events.size());
  }
  EXPECT_EQ(received.finish(), FinishReason::length);
  EXPECT_EQ(received.last().prompt_tokens, prompt_of(1, 20));
  EXPECT_EQ(received.last().timings.prompt_tokens, 20);
  EXPECT_EQ(received.last().timings.output_tokens, 5);
  EXPECT_GT(received.last().timings.prefill_s, 0);
  EXPECT_GT(received.last().timings.decode_s, 0);
  EXPECT_FALSE(received.last().error.has_value());
}

TEST(Loop, EndOfSequenceEndsAndGivesNoText) {
  World world;
  world.model.script = [](int length, int32_t) -> std::optional<int32_t> {
    if (length == 8) return 2;
    return std::nullopt;
  };
  Received received, ignoring, later;
  world.submit(prompt_of(1, 5), greedy(20), received);
  SamplingParams params = greedy(20);
  params.ignore_eos = true;
  world.submit(prompt_of(1, 5), params, ignoring);
  params = greedy(20);
  params.min_tokens = 6;
  world.submit(prompt_of(1, 5), params, later);
  world.turn_until_idle();
  EXPECT_EQ(received.finish(), FinishReason::stop);
  ASSERT_EQ(received.tokens.size(), 4u);
  EXPECT_EQ(received.tokens.back(), 2);
  EXPECT_EQ(received.last().text, "");
  EXPECT_EQ(ignoring.finish(), FinishReason::length);
  EXPECT_EQ(ignoring.tokens.size(), 20u);
  EXPECT_EQ(later.finish(), FinishReason::length);
  EXPECT_EQ(later.tokens.size(), 20u);
}

TEST(Loop, StopTokenIdsEnd) {
  World world;
  Received plain, received;
  world.submit(prompt_of(4, 5), greedy(20), plain);
  world.turn_until_idle();
  SamplingParams params = greedy(20);
  params.stop_token_ids = {plain.tokens[3]};
  world.submit(prompt_of(4, 5), params, received);
  world.turn_until_idle();
  EXPECT_EQ(received.finish(), FinishReason::stop);
  EXPECT_LE(received.tokens.size(), 4u);
  EXPECT_EQ(received.tokens.back(), plain.tokens[3]);
}

TEST(Loop, StopStringEndsBeforeItself) {
  World world;
  Received plain, stopped;
  world.submit(prompt_of(2, 5), greedy(20), plain);
  world.turn_until_idle();
  SamplingParams params = greedy(20);
  const size_t middle = plain.text.size() / 2;
  size_t begin = middle;  // a stop string of whole characters out of the middle of the text
  while ((static_cast<unsigned char>(plain.text[begin]) & 0xC0) == 0x80) --begin;
  size_t end = begin + 4;
  while (end < plain.text.size() && (static_cast<unsigned char>(plain.text[end]) & 0xC0) == 0x80)
    ++end;
  params.stop = {plain.text.substr(begin, end - begin)};
  world.submit(prompt_of(2, 5), params, stopped);
  world.turn_until_idle();
  EXPECT_EQ(stopped.finish(), FinishReason::stop);
  EXPECT_EQ(stopped.text, plain.text.substr(0, plain.text.find(params.stop[0])));
  EXPECT_LT(stopped.tokens.size(), plain.tokens.size());
}

TEST(Loop, OutputIsCutAtTheLongestSequence) {
  WorldShape shape;
  shape.max_model_len = 12;
  World world(shape);
  Received received;
  world.submit(prompt_of(1, 10), greedy(50), received);
  world.turn_until_idle();
  EXPECT_EQ(received.tokens.size(), 2u);
  EXPECT_EQ(received.finish(), FinishReason::length);
}

TEST(Loop, CancellationFreesBlocksWhereverARequestStands) {
  WorldShape shape;
  shape.max_sequences = 2;
  World world(shape);
  Received decoding, in_prompt, waiting;
  const RequestId first = world.submit(prompt_of(1, 4), greedy(50), decoding);
  world.loop.turn();
  const RequestId second = world.submit(prompt_of(2, 60), greedy(50), in_prompt);
  const RequestId third = world.submit(prompt_of(3, 4), greedy(50), waiting);
  world.loop.turn();
  EXPECT_GT(world.loop.counts().blocks_used, 10);
  EXPECT_EQ(world.loop.counts().waiting, 1);
  for (const RequestId id : {first, second, third, RequestId{999}}) world.loop.cancel(id);
  EXPECT_FALSE(world.loop.turn());
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  for (const Received* received : {&decoding, &in_prompt, &waiting})
    EXPECT_EQ(received->finish(), FinishReason::cancelled);
  EXPECT_EQ(decoding.tokens.size(), 2u);
  EXPECT_TRUE(in_prompt.tokens.empty());
  world.loop.cancel(first);  // long gone
  EXPECT_FALSE(world.loop.turn());
  EXPECT_EQ(decoding.events.size(), 3u);
}

TEST(Loop, NonFiniteLogitsEndOnlyTheirRequest) {
  World world;
  world.model.poisoned_first_token = prompt_of(3, 24)[0];
  world.model.poisoned_from = 26;
  std::vector<Received> received(5);
  for (int i = 0; i < 5; ++i)
    world.submit(prompt_of(i, 3 + 7 * i), params_of(i), received[static_cast<size_t>(i)]);
  world.turn_until_idle();
  EXPECT_EQ(received[3].finish(), FinishReason::error);
  ASSERT_TRUE(received[3].last().error.has_value());
  EXPECT_EQ(received[3].last().error->code, Code::internal);
  EXPECT_NE(received[3].last().error->message.find("non_finite"), std::string::npos);
  EXPECT_EQ(received[3].tokens.size(), 2u);
  received.erase(received.begin() + 3, received.end());
  expect_same_as_alone(received);
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  EXPECT_NE(
      world.metrics.prometheus_text().find("switchyard_nonfinite_events_total{where=\"logits\"} 1"),
      std::string::npos);
}

TEST(Loop, FailingStepFailsItsSequencesNotTheLoop) {
  World world;
  world.model.failing_step = 3;
  std::vector<Received> received(2);
  for (int i = 0; i < 2; ++i)
    world.submit(prompt_of(i, 4), greedy(30), received[static_cast<size_t>(i)]);
  world.turn_until_idle();
  for (const Received& one : received) {
    EXPECT_EQ(one.finish(), FinishReason::error);
    EXPECT_EQ(one.last().error->code, Code::device);
  }
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  Received after;
  world.submit(prompt_of(0, 3), params_of(0), after);
  world.turn_until_idle();
  EXPECT_EQ(after.tokens, run_alone(0).tokens);
}

TEST(Loop, RefusesBadRequests) {
  World world;
  const auto refused = [&](std::vector<int32_t> prompt, const SamplingParams& params) {
    const auto id = world.try_submit(std::move(prompt), params, [](const Event&) {});
    if (id.ok()) return std::string("accepted");
    EXPECT_EQ(id.error().code, Code::bad_request);
    return id.error().message;
  };
  EXPECT_EQ(refused({}, greedy(4)).substr(0, 19), "the prompt is empty");
  EXPECT_EQ(refused({1, 512}, greedy(4)),
            "prompt_tokens[1] is 512, expected a token id in [0, 512)");
  EXPECT_EQ(refused({-1}, greedy(4)).substr(0, 16), "prompt_tokens[0]");
  EXPECT_NE(refused(prompt_of(1, 200), greedy(4)).find("200 tokens"), std::string::npos);
  EXPECT_EQ(refused({1}, greedy(0)).substr(0, 10), "max_tokens");
  SamplingParams params = greedy(4);
  params.stop_token_ids = {512};
  EXPECT_EQ(refused({1}, params).substr(0, 14), "stop_token_ids");
  EXPECT_FALSE(world.loop.turn());
}

TEST(Loop, CountsEveryPickOfEveryToken) {
  World world;
  Received received;
  world.submit(prompt_of(1, 9), greedy(4), received);
  world.turn_until_idle();
  // The last token is produced but never computed.
  constexpr uint64_t kComputed = 9 + 4 - 1;
  const EngineStats stats = world.loop.statistics().read();
  ASSERT_EQ(stats.load.size(), static_cast<size_t>(FakeModel::kMoeLayers));
  for (size_t layer = 0; layer < stats.load.size(); ++layer) {
    const auto& load = stats.load[layer];
    EXPECT_EQ(std::accumulate(load.begin(), load.end(), uint64_t{0}), kComputed * FakeModel::kTopK);
    const auto& picks = received.last().moe.picks[layer];
    EXPECT_TRUE(std::equal(load.begin(), load.end(), picks.begin(), picks.end()));
    EXPECT_GE(stats.imbalance[layer], 1.0);
    EXPECT_GE(stats.experts_touched[layer], 2.0);
  }
  EXPECT_EQ(stats.steps, 4u);
  EXPECT_EQ(stats.prompt_tokens, 9u);
  EXPECT_EQ(stats.output_tokens, 4u);
  world.loop.statistics().reset();
  EXPECT_EQ(world.loop.statistics().read().steps, 0u);
  EXPECT_EQ(world.loop.statistics().read().load[0][0], 0u);
}

TEST(Loop, ImbalanceIsHottestOverMeanPerStep) {
  World world;
  world.model.script = [](int, int32_t) { return 300; };  // 300 % 8 = 4
  Received received;
  world.submit({300}, greedy(5), received);
  world.turn_until_idle();
  const EngineStats stats = world.loop.statistics().read();
  // One token in every step: two of eight experts with one pick each; hottest 1, mean 2 / 8.
  EXPECT_DOUBLE_EQ(stats.imbalance[0], 4.0);
  EXPECT_DOUBLE_EQ(stats.experts_touched[0], 2.0);
  EXPECT_EQ(stats.load[0][4], 5u);
  EXPECT_EQ(stats.load[0][5], 5u);
  EXPECT_EQ(stats.load[2][6], 5u);
}

TEST(Loop, PicksOfAPreemptedRequestCountEveryTokenOnce) {
  WorldShape shape;
  shape.num_blocks = 12;
  World world(shape);
  std::vector<Received> received(3);
  for (int i = 0; i < 3; ++i)
    world.submit(prompt_of(i, 8), greedy(25), received[static_cast<size_t>(i)]);
  world.turn_until_idle();
  ASSERT_GT(world.loop.counts().preemptions, 0u);
  for (const Received& one : received) {
    const auto& picks = one.last().moe.picks[1];
    EXPECT_EQ(std::accumulate(picks.begin(), picks.end(), 0u), (8u + 25 - 1) * FakeModel::kTopK);
  }
}

TEST(Loop, WarmDecodingStepsAllocateNothing) {
  WorldShape shape;
  shape.num_blocks = 200;
  World world(shape);
  uint64_t events = 0;
  for (int i = 0; i < 4; ++i) {
    SamplingParams params = params_of(i);
    params.max_tokens = 150;
    params.ignore_eos = true;
    params.stop = {"never to be seen"};
    const auto id = world.try_submit(prompt_of(i, 4), params, [&](const Event&) { ++events; });
    ASSERT_TRUE(id.ok());
  }
  for (int i = 0; i < 40; ++i) world.loop.turn();  // prompts are through, buffers have grown
  const uint64_t before = allocations_of_this_thread(), events_before = events;
  for (int i = 0; i < 60; ++i) world.loop.turn();
  EXPECT_EQ(allocations_of_this_thread() - before, 0u);
  EXPECT_EQ(events - events_before, 4u * 60) << "the steps were not all decoding steps";
  world.loop.stop();
  world.loop.turn();
}

TEST(Loop, StopEndsEverybodyAndRefusesNewcomers) {
  World world;
  std::vector<Received> received(6);
  for (int i = 0; i < 6; ++i)
    world.submit(prompt_of(i, 4), greedy(100), received[static_cast<size_t>(i)]);
  for (int i = 0; i < 3; ++i) world.loop.turn();
  world.loop.stop();
  world.loop.run();  // returns
  for (const Received& one : received) EXPECT_EQ(one.finish(), FinishReason::cancelled);
  const auto late = world.try_submit({5}, greedy(3), [](const Event&) {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::unavailable);
  world.loop.wait_idle();  // returns
}

TEST(Loop, ManyThreadsSubmitAndCancelWhileItRuns) {
  World world;
  std::thread runner([&] { world.loop.run(); });
  constexpr int kThreads = 4, kEach = 25;
  std::vector<std::vector<Received>> received(kThreads, std::vector<Received>(kEach));
  std::vector<std::thread> clients;
  for (int c = 0; c < kThreads; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < kEach; ++i) {
        Received& mine = received[static_cast<size_t>(c)][static_cast<size_t>(i)];
        const auto id = world.try_submit(prompt_of(c + i, 3 + i), greedy(5 + i), mine.sink());
        ASSERT_TRUE(id.ok());
        if (i % 5 == 0) world.loop.cancel(*id);
        (void)world.loop.statistics().read();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  world.loop.wait_idle();
  for (const auto& client : received) {
    for (int i = 0; i < kEach; ++i) {
      const Received& one = client[static_cast<size_t>(i)];
      int ends = 0;
      for (const Event& event : one.events) ends += event.finish != FinishReason::none ? 1 : 0;
      EXPECT_EQ(ends, 1);
      if (one.finish() == FinishReason::cancelled) {
        EXPECT_EQ(i % 5, 0);
      } else {
        EXPECT_EQ(one.tokens.size(), static_cast<size_t>(5 + i));
      }
    }
  }
  world.loop.stop();
  runner.join();
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
}

TEST(Loop, SeedsDifferWhenNobodyChoosesThem) {
  World world;
  std::map<std::vector<int32_t>, int> texts;
  for (int i = 0; i < 5; ++i) {
    Received received;
    SamplingParams params;
    params.temperature = 100;
    params.max_tokens = 8;
    params.ignore_eos = true;
    world.submit(prompt_of(1, 4), params, received);
    world.turn_until_idle();
    ++texts[received.tokens];
  }
  EXPECT_EQ(texts.size(), 5u);
}

TEST(Loop, MetricsTellTheStory) {
  World world;
  Received received;
  world.submit(prompt_of(1, 20), greedy(6), received);
  world.turn_until_idle();
  const std::string text = world.metrics.prometheus_text();
  for (const char* line : {"switchyard_requests_finished_total{finish_reason=\"length\"} 1",
                           "switchyard_prompt_tokens_total{source=\"computed\"} 20",
                           "switchyard_generation_tokens_total 6", "switchyard_requests_running 0",
                           "switchyard_time_to_first_token_seconds_count 1",
                           "switchyard_inter_token_latency_seconds_count 5",
                           "switchyard_step_duration_seconds_count{stage=\"decode\"} 5",
                           "switchyard_step_duration_seconds_count{stage=\"prefill\"} 2",
                           "switchyard_routed_assignments_total{layer=\"2\",stage=\"prefill\"} 40",
                           "switchyard_kv_cache_usage_ratio 0"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace switchyard::engine
