// SPDX-License-Identifier: Apache-2.0
// What a server promises of its engine, one test for each promise, named after it; those that need no tokens are in
// tests/schedule/acceptance_test.cpp.
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/loop_world.h"

namespace switchyard::engine {
namespace {

Request request_of(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt_tokens = std::move(prompt);
  request.sampling = greedy(max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

/// `common` tokens that all have alike, then `own` that nobody else has.
std::vector<int32_t> prompt_with(int common, int own, int who) {
  std::vector<int32_t> prompt = prompt_of(1, common);
  for (const int32_t token : prompt_of(who, own)) prompt.push_back(token);
  return prompt;
}

bool has_line(World& world, const std::string& line) {
  const std::string text = world.metrics.prometheus_text();
  const bool found = text.find(line + "\n") != std::string::npos;
  EXPECT_TRUE(found) << line << "\n" << text;
  return found;
}

/// Requests join and leave in each step, and give the text that they give alone.
TEST(Acceptance, ContinuousBatching) {
  World world;
  std::vector<Received> received(8);
  for (int i = 0; i < 8; ++i) {
    world.submit(request_of(prompt_of(i, 3 + 7 * i), 6 + 5 * i), received[static_cast<size_t>(i)]);
    for (int turn = 0; turn < 3; ++turn) world.loop.turn();
  }
  world.turn_until_idle();
  for (int i = 0; i < 8; ++i) {
    World lonely;
    Received alone;
    lonely.submit(request_of(prompt_of(i, 3 + 7 * i), 6 + 5 * i), alone);
    lonely.turn_until_idle();
    EXPECT_EQ(received[static_cast<size_t>(i)].text, alone.text) << "request " << i;
  }
}

/// A hit gives what a miss gives, and says how much it has found.
TEST(Acceptance, PrefixCache) {
  WorldShape without;
  without.prefix_cache = false;
  for (const int common : {3, 4, 16, 17, 30}) {
    World with, plain(without);
    for (int who = 2; who < 6; ++who) {
      const Request request = request_of(prompt_with(common, 3, who), 12);
      Received hit, miss;
      with.submit(request, hit);
      with.turn_until_idle();
      plain.submit(request, miss);
      plain.turn_until_idle();
      EXPECT_EQ(hit.tokens, miss.tokens);
      EXPECT_EQ(hit.text, miss.text);
      EXPECT_EQ(miss.last().timings.cached_tokens, 0);
      EXPECT_EQ(hit.last().timings.cached_tokens, who == 2 ? 0 : common / 4 * 4);
    }
    EXPECT_EQ(with.loop.statistics().read().cached_tokens,
              static_cast<uint64_t>(3 * (common / 4 * 4)));
  }
}

/// The case of ROCm/aiter#4032: one token of a prompt is left to compute; and that of none.
TEST(Acceptance, PrefixCacheOneTokenRemainder) {
  for (const int prompt_tokens : {17, 16}) {
    World world;
    std::vector<Received> received(2);
    for (Received& one : received) {
      world.submit(request_of(prompt_of(1, prompt_tokens), 9), one);
      world.turn_until_idle();
    }
    EXPECT_EQ(received[0].tokens, received[1].tokens);
    EXPECT_EQ(received[1].last().timings.cached_tokens, prompt_tokens == 17 ? 16 : 12);
  }
}

/// The next turn of a conversation finds its own past, answer included.
TEST(Acceptance, PrefixCacheOfConversations) {
  World world;
  std::vector<int32_t> history = prompt_of(1, 6);
  for (int turn = 0; turn < 4; ++turn) {
    Received received;
    world.submit(request_of(history, 9), received);
    world.turn_until_idle();
    // Its last token was never put through the model.
    const auto known = static_cast<int>(history.size());
    EXPECT_EQ(received.last().timings.cached_tokens, turn == 0 ? 0 : (known - 4) / 4 * 4);
    history.insert(history.end(), received.tokens.begin(), received.tokens.end());
    for (const int32_t token : prompt_of(turn, 3)) history.push_back(token);
  }
}

/// Several answers to one prompt at once: it is computed once.
TEST(Acceptance, PrefixCacheOfABurst) {
  World world;
  std::vector<Received> received(4);
  for (Received& one : received) world.submit(request_of(prompt_of(1, 21), 5), one);
  world.turn_until_idle();
  EXPECT_EQ(world.model.tokens(), 21 + 3 * 1 + 4 * 4);
  for (const Received& one : received) EXPECT_EQ(one.tokens, received[0].tokens);
}

TEST(Acceptance, PrefixCacheIsParted) {
  World world;
  const auto cached = [&](auto change) {
    Request request = request_of(prompt_of(1, 21), 2);
    change(request);
    Received received;
    world.submit(request, received);
    world.turn_until_idle();
    return received.last().timings.cached_tokens;
  };
  EXPECT_EQ(cached([](Request& r) { r.reuse_prefix = false; }), 0);
  EXPECT_EQ(cached([](Request& r) { r.cache_salt = "anna"; }), 0) << "nothing was left for others";
  EXPECT_EQ(cached([](Request& r) { r.cache_salt = "anna"; }), 20);
  EXPECT_EQ(cached([](Request& r) { r.cache_salt = "ben"; }), 0);
  EXPECT_EQ(cached([](Request&) {}), 0);
  EXPECT_EQ(cached([](Request& r) { r.reuse_prefix = false; }), 0);
  EXPECT_EQ(cached([](Request&) {}), 20);
}

TEST(Acceptance, PrefixCacheForgetsWhatWentWrong) {
  World world;
  world.model.failing_step = 1;
  Received first, second, third;
  world.submit(request_of(prompt_of(1, 13), 4), first);
  world.turn_until_idle();  // the prompt, then a step that fails
  EXPECT_EQ(first.finish(), FinishReason::error);
  world.submit(request_of(prompt_of(1, 13), 4), second);
  world.turn_until_idle();
  EXPECT_EQ(second.last().timings.cached_tokens, 0);
  world.submit(request_of(prompt_of(1, 13), 4), third);
  world.turn_until_idle();
  EXPECT_EQ(third.last().timings.cached_tokens, 12);
  EXPECT_EQ(third.tokens, second.tokens);
}

/// Texts do not change when blocks are shared, evicted and computed again all at once.
TEST(Acceptance, PreemptionWithSharedPrefixes) {
  WorldShape shape;
  shape.num_blocks = 20;
  shape.max_sequences = 8;
  World world(shape);
  std::vector<Received> received(24);
  for (int i = 0; i < 24; ++i)
    world.submit(request_of(prompt_with(4 * (i % 4), 3 + i % 5, i), 10 + 3 * (i % 7)),
                 received[static_cast<size_t>(i)]);
  world.turn_until_idle();
  EXPECT_GT(world.loop.counts().preemptions, 5u);
  EXPECT_GT(world.loop.counts().prefix_hit_tokens, 20u);
  EXPECT_GT(world.loop.counts().evictions, 20u);
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  for (int i = 0; i < 24; ++i) {
    World lonely;
    Received alone;
    lonely.submit(request_of(prompt_with(4 * (i % 4), 3 + i % 5, i), 10 + 3 * (i % 7)), alone);
    lonely.turn_until_idle();
    EXPECT_EQ(received[static_cast<size_t>(i)].tokens, alone.tokens) << "request " << i;
  }
}

TEST(Acceptance, Priority) {
  WorldShape shape;
  shape.max_sequences = 1;
  World world(shape);
  std::vector<int> order;
  for (const int priority : {2, 0, 1, -3}) {
    Request request = request_of(prompt_of(1, 5), 2);
    request.priority = priority;
    const auto id = world.try_submit(request, [&order, priority](const Event& event) {
      if (event.finish != FinishReason::none) order.push_back(priority);
    });
    ASSERT_TRUE(id.ok());
  }
  world.turn_until_idle();
  EXPECT_EQ(order, (std::vector<int>{-3, 0, 1, 2}));
  Request wrong = request_of(prompt_of(1, 5), 2);
  for (const int priority : {-1001, 1001, std::numeric_limits<int>::min()}) {
    wrong.priority = priority;
    EXPECT_EQ(world.try_submit(wrong, [](const Event&) {}).error().code, Code::bad_request);
  }
}

/// Queued, in its prompt, decoding: blocks are free within two steps, and there is one last event.
TEST(Acceptance, Cancel) {
  WorldShape shape;
  shape.max_sequences = 2;
  World world(shape);
  std::vector<Received> received(3);
  std::vector<RequestId> ids;
  ids.push_back(world.submit(request_of(prompt_of(1, 4), 50), received[0]));
  world.loop.turn();
  ids.push_back(world.submit(request_of(prompt_of(2, 60), 50), received[1]));
  ids.push_back(world.submit(request_of(prompt_of(3, 4), 50), received[2]));
  world.loop.turn();
  ASSERT_EQ(world.loop.counts().running, 2);
  ASSERT_EQ(world.loop.counts().waiting, 1);
  for (const RequestId id : ids) world.loop.cancel(id);
  for (int step = 0; step < 2; ++step) world.loop.turn();
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  for (const Received& one : received) EXPECT_EQ(one.finish(), FinishReason::cancelled);
  Received normal;
  world.submit(request_of(prompt_of(1, 4), 3), normal);
  world.turn_until_idle();
  EXPECT_EQ(normal.finish(), FinishReason::length) << "no abort on normal completion";
  has_line(world, "switchyard_requests_finished_total{finish_reason=\"cancelled\"} 3");
  has_line(world, "switchyard_requests_finished_total{finish_reason=\"length\"} 1");
}

/// A burst of ten times what may wait: who is turned away has cost no step, no token, no block. (vllm#58192)
TEST(Acceptance, Backpressure) {
  WorldShape shape;
  shape.queue = {.max_requests = 4, .max_tokens = 50};
  World world(shape);
  std::vector<Received> received(40);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    const auto id =
        world.try_submit(request_of(prompt_of(i, 10), 3), received[static_cast<size_t>(i)].sink());
    if (id.ok()) continue;
    ++refused;
    EXPECT_EQ(id.error().code, Code::overloaded);
    EXPECT_NE(id.error().message.find("queue_full: 4 requests wait already, at most 4 may"),
              std::string::npos);
  }
  EXPECT_EQ(refused, 36);
  world.turn_until_idle();
  EXPECT_EQ(world.model.tokens(), 4 * (10 + 2)) << "refused requests do no work";
  for (int i = 4; i < 40; ++i) EXPECT_TRUE(received[static_cast<size_t>(i)].events.empty());
  has_line(world, "switchyard_requests_rejected_total{reason=\"queue_full\"} 36");
  // Places come back with the first step, so that the queue holds who waits, not who runs.
  for (int i = 0; i < 4; ++i)
    world.submit(request_of(prompt_of(i, 10), 30), received[static_cast<size_t>(i)]);
  for (int i = 0; i < 3; ++i) world.loop.turn();
  world.submit(request_of(prompt_of(5, 30), 3), received[5]);
  const auto too_much = world.try_submit(request_of(prompt_of(6, 30), 3), [](const Event&) {});
  ASSERT_FALSE(too_much.ok());
  EXPECT_NE(too_much.error().message.find("queue_tokens_full: 30 prompt tokens"),
            std::string::npos);
  has_line(world, "switchyard_requests_rejected_total{reason=\"queue_tokens\"} 1");
  world.turn_until_idle();
}

TEST(Acceptance, BackpressurePlacesComeBackWhateverHappens) {
  WorldShape shape;
  shape.queue = {.max_requests = 1};
  World world(shape);
  EXPECT_EQ(world.try_submit(request_of({}, 3), [](const Event&) {}).error().code,
            Code::bad_request);
  Received received;
  const RequestId id = world.submit(request_of(prompt_of(1, 4), 3), received);
  world.loop.cancel(id);
  EXPECT_EQ(world.try_submit(request_of(prompt_of(1, 4), 3), [](const Event&) {}).error().code,
            Code::overloaded);
  world.loop.turn();
  world.submit(request_of(prompt_of(1, 4), 3), received);
  world.turn_until_idle();
  EXPECT_EQ(received.finish(), FinishReason::length);
}

TEST(Acceptance, Deadlines) {
  WorldShape shape;
  shape.max_sequences = 1;
  World world(shape);
  Received total, queue, patient;
  Request request = request_of(prompt_of(1, 4), 150);
  request.timeout_s = 1;
  world.submit(request, total);
  world.loop.turn();
  request = request_of(prompt_of(2, 4), 5);
  request.queue_timeout_s = 0.001;
  world.submit(request, queue);
  request.queue_timeout_s = 1000;
  world.submit(request, patient);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  world.loop.turn();
  ASSERT_EQ(queue.finish(), FinishReason::error);
  EXPECT_EQ(queue.last().error->code, Code::deadline);
  EXPECT_EQ(queue.last().error->message,
            "deadline_exceeded: queue_timeout_s of 0.001 s is over after 0 output tokens");
  EXPECT_EQ(total.finish(), FinishReason::none);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  world.turn_until_idle();
  EXPECT_EQ(total.last().error->code, Code::deadline);
  EXPECT_NE(total.last().error->message.find("timeout_s of 1 s is over after 2 output tokens"),
            std::string::npos)
      << total.last().error->message;
  EXPECT_EQ(patient.finish(), FinishReason::length);
  EXPECT_EQ(world.loop.counts().blocks_used, 0);
  has_line(world, "switchyard_deadlines_missed_total{deadline=\"queue\"} 1");
  has_line(world, "switchyard_deadlines_missed_total{deadline=\"total\"} 1");
  request.timeout_s = -1;
  EXPECT_EQ(world.try_submit(request, [](const Event&) {}).error().code, Code::bad_request);
}

/// New ones are refused, running ones end by themselves.
TEST(Acceptance, Drain) {
  World world;
  std::thread runner([&] { world.loop.run(); });
  std::vector<Received> received(6);
  for (int i = 0; i < 6; ++i)
    world.submit(request_of(prompt_of(i, 4), 100), received[static_cast<size_t>(i)]);
  world.loop.drain();
  const auto late = world.try_submit(request_of(prompt_of(1, 4), 3), [](const Event&) {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::unavailable);
  EXPECT_TRUE(world.loop.wait_idle_for(60));
  world.loop.stop();
  runner.join();
  for (const Received& one : received) EXPECT_EQ(one.finish(), FinishReason::length);
  has_line(world, "switchyard_requests_rejected_total{reason=\"draining\"} 1");
}

TEST(Acceptance, DrainThatTakesTooLong) {
  World world;  // nobody turns
  Received received;
  world.submit(request_of(prompt_of(1, 4), 3), received);
  world.loop.drain();
  EXPECT_FALSE(world.loop.wait_idle_for(0.01));
  world.loop.stop();
  world.loop.turn();
  EXPECT_TRUE(world.loop.wait_idle_for(0));
  EXPECT_EQ(received.finish(), FinishReason::cancelled);
}

/// When the device dies, all who were in the step get an error, and so does everybody after them; nobody hangs.
TEST(Acceptance, EngineDeath) {
  World world;
  world.model.failing_from = 2;
  std::thread runner([&] { world.loop.run(); });
  std::vector<Received> received(9);
  for (int i = 0; i < 9; ++i)
    world.submit(request_of(prompt_of(i, 4), 60), received[static_cast<size_t>(i)]);
  EXPECT_TRUE(world.loop.wait_idle_for(60));
  world.loop.stop();
  runner.join();
  for (const Received& one : received) {
    ASSERT_EQ(one.finish(), FinishReason::error);
    EXPECT_EQ(one.last().error->code, Code::device);
  }
}

/// The loop sleeps while a small decoding step waits for company, and wakes by itself.
TEST(Acceptance, MinimumDecodeBatchWait) {
  WorldShape shape;
  shape.min_decode_batch = 2;
  shape.decode_wait_s = 0.002;
  World world(shape);
  std::thread runner([&] { world.loop.run(); });
  Received received;
  const int64_t start = now_ns();
  world.submit(request_of(prompt_of(1, 4), 11), received);
  EXPECT_TRUE(world.loop.wait_idle_for(60));
  EXPECT_GE(now_ns() - start, 10 * 2'000'000) << "ten decoding steps waited 2 ms each";
  world.loop.stop();
  runner.join();
  EXPECT_EQ(received.tokens.size(), 11u);
  has_line(world, "switchyard_held_steps_total 10");
}

TEST(Acceptance, ExpertsTouchedAreAMetric) {
  World world;
  Received received;
  world.submit(request_of(prompt_of(1, 1), 3), received);
  world.turn_until_idle();
  has_line(world, "switchyard_last_step_active_experts 2");
}

/// Picks are counted for whoever asked, and only then; those of all requests together in any case.
TEST(Acceptance, MoeStatsOnRequest) {
  World world;
  std::vector<Received> received(3);
  for (int i = 0; i < 3; ++i) {
    Request request = request_of(prompt_of(i, 5 + i), 4);
    request.moe_stats = i == 1;
    world.submit(request, received[static_cast<size_t>(i)]);
  }
  world.turn_until_idle();
  EXPECT_TRUE(received[0].last().moe.picks.empty());
  EXPECT_TRUE(received[2].last().moe.picks.empty());
  ASSERT_EQ(received[1].last().moe.picks.size(), static_cast<size_t>(FakeModel::kMoeLayers));
  uint32_t counted = 0;
  for (const uint32_t picks : received[1].last().moe.picks[2]) counted += picks;
  EXPECT_EQ(counted, static_cast<uint32_t>((6 + 3) * FakeModel::kTopK));
  uint64_t all = 0;
  const EngineStats stats = world.loop.statistics().read();
  for (const uint64_t picks : stats.load[2]) all += picks;
  EXPECT_EQ(all, static_cast<uint64_t>((5 + 6 + 7 + 3 * 3) * FakeModel::kTopK));
}

TEST(Acceptance, PrefixCacheMetrics) {
  World world;
  for (int i = 0; i < 2; ++i) {
    Received received;
    world.submit(request_of(prompt_of(1, 21), 2), received);
    world.turn_until_idle();
  }
  for (const char* line :
       {"switchyard_prompt_tokens_total{source=\"computed\"} 22",
        "switchyard_prompt_tokens_total{source=\"cached\"} 20",
        "switchyard_prefix_cache_query_tokens_total 42",
        "switchyard_prefix_cache_hit_tokens_total 20", "switchyard_prefix_cache_evictions_total 0",
        "switchyard_kv_cache_usage_ratio 0", "switchyard_kv_cache_blocks{state=\"cached\"} 5",
        "switchyard_kv_cache_blocks{state=\"free\"} 59",
        "switchyard_kv_cache_blocks{state=\"used\"} 0"})
    has_line(world, line);
}

}  // namespace
}  // namespace switchyard::engine
