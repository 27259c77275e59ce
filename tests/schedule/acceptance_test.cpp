// SPDX-License-Identifier: Apache-2.0
// What a server promises of its scheduler, one test for each promise, named after it; those that need tokens and
// threads are in tests/engine/acceptance_test.cpp.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/small_cases.h"

namespace switchyard::schedule {
namespace {

/// A prompt of 32k raises the time between others' tokens by one step at most: whoever decodes is in every step, and no
/// step exceeds the budget.
TEST(Acceptance, ChunkedPrefill) {
  Scheduler scheduler(limits(8, 512, 4096, 16));
  for (SequenceId id = 1; id <= 7; ++id) ASSERT_TRUE(scheduler.add({id, 20, 200, 0}).ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(scheduler.add({8, 32768, 32800, 0}).ok());
  int steps = 0;
  for (bool done = false; !done; ++steps) {
    const Decision& decision = scheduler.decide(0);
    EXPECT_LE(decision.num_tokens, 512);
    EXPECT_EQ(decision.num_decodes, 7) << "step " << steps;
    done = decision.num_samples == 8;
    go_on(scheduler, decision);
  }
  EXPECT_EQ(steps, (32768 + 504) / 505) << "the prompt takes all of the budget that is left";
}

/// Plays requests to their ends, with aborts; returns how many ended.
class Traffic {
 public:
  Traffic(const Limits& limits, uint32_t seed) : scheduler_(limits), random_(seed) {}

  void add(int prompt, int max_tokens, int priority, int common) {
    const std::vector<BlockKey> keys =
        keys_of(prompt, common, static_cast<int>(next_), scheduler_.limits().block_tokens);
    ASSERT_TRUE(scheduler_
                    .add({.id = next_++,
                          .prompt_tokens = prompt,
                          .max_tokens = max_tokens,
                          .now_s = now_s_,
                          .priority = priority,
                          .keys = keys})
                    .ok());
  }
  void abort_one_of_the_last(int count) {
    const auto back = static_cast<SequenceId>(draw(count));
    if (next_ > back + 1) ended_ += scheduler_.cancel(next_ - 1 - back) ? 1 : 0;
  }
  /// Every run ends with a chance of 1 in `ends`, or when it is full.
  void step(int ends) {
    now_s_ += 0.01;
    const Decision& decision = scheduler_.decide(now_s_);
    if (decision.idle()) return;
    std::vector<Outcome> outcomes;
    for (const Decision::Run& run : decision.runs) {
      const Sequence& sequence = *scheduler_.find(run.id);
      const bool full = sequence.known_tokens + 1 >= sequence.max_tokens;
      const bool ended = run.samples && (full || draw(ends) == 0);
      outcomes.push_back(ended ? Outcome::ended : Outcome::goes_on);
      ended_ += ended ? 1 : 0;
    }
    scheduler_.commit(decision, outcomes);
  }
  int draw(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  const Scheduler& scheduler() const { return scheduler_; }
  int ended() const { return ended_; }
  int added() const { return static_cast<int>(next_) - 1; }

 private:
  Scheduler scheduler_;
  std::mt19937 random_;
  SequenceId next_ = 1;
  double now_s_ = 0;
  int ended_ = 0;
};

/// Ten thousand mixed requests and aborts, with shared prefixes: every block comes back.
TEST(Acceptance, PagedKv) {
  Traffic traffic(limits(16, 64, 40), 7);
  for (int guard = 0; traffic.ended() < 10000; ++guard) {
    ASSERT_LT(guard, 1000000);
    while (traffic.added() < 10000 && traffic.scheduler().counts().waiting < 4) {
      const int prompt = 1 + traffic.draw(30);
      traffic.add(prompt, prompt + 12, traffic.draw(3), traffic.draw(20));
    }
    if (traffic.draw(8) == 0) traffic.abort_one_of_the_last(5);
    traffic.step(6);
  }
  const Counts counts = traffic.scheduler().counts();
  EXPECT_EQ(counts.blocks_free + counts.blocks_cached, 40);
  EXPECT_EQ(counts.blocks_used, 0);
  EXPECT_EQ(counts.running + counts.waiting, 0);
  EXPECT_GT(counts.prefix_hit_tokens, 1000u);
  EXPECT_GT(counts.evictions, 1000u);
}

/// Far more than the cache can hold: all of it ends, the first of all in the first place.
TEST(Acceptance, Preemption) {
  Traffic traffic(limits(16, 64, 20), 3);
  for (int i = 0; i < 60; ++i) traffic.add(10, 60, i % 3, 0);
  for (int guard = 0; traffic.ended() < 60; ++guard) {
    ASSERT_LT(guard, 20000) << "starvation";
    traffic.step(1000);
  }
  EXPECT_GT(traffic.scheduler().counts().preemptions, 20u);
  EXPECT_GT(traffic.scheduler().counts().recomputed_tokens, 0u);
}

/// Who is preempted: of the lowest priority, the newest.
TEST(Acceptance, PreemptionTakesTheNewestOfTheLowestPriority) {
  Scheduler scheduler(limits(4, 64, 7));
  const int priorities[] = {2, 0, 2, 1};
  for (SequenceId id = 1; id <= 4; ++id)
    ASSERT_TRUE(scheduler
                    .add({.id = id,
                          .prompt_tokens = id == 4 ? 3 : 4,
                          .max_tokens = 24,
                          .now_s = static_cast<double>(id),
                          .priority = priorities[id - 1]})
                    .ok());
  std::vector<SequenceId> preempted;
  for (int i = 0; i < 12; ++i) {
    const Decision& decision = scheduler.decide(5);
    preempted.insert(preempted.end(), decision.preempted.begin(), decision.preempted.end());
    go_on(scheduler, decision);
  }
  ASSERT_GE(preempted.size(), 2u);
  EXPECT_EQ(preempted[0], 3u);
  EXPECT_EQ(preempted[1], 1u);
}

SequenceId only_run(Scheduler& scheduler, double now_s) {
  const Decision& decision = scheduler.decide(now_s);
  EXPECT_EQ(decision.runs.size(), 1u);
  const SequenceId id = decision.runs[0].id;
  commit_all(scheduler, decision, Outcome::ended);
  return id;
}

/// Lower numbers first, then by arrival; every ageing_s of waiting counts as one level.
TEST(Acceptance, Priority) {
  Limits one_at_a_time = limits(1, 8, 16);
  one_at_a_time.ageing_s = 10;
  Scheduler scheduler(one_at_a_time);
  const auto add = [&](SequenceId id, double now_s, int priority) {
    ASSERT_TRUE(scheduler
                    .add({.id = id,
                          .prompt_tokens = 2,
                          .max_tokens = 4,
                          .now_s = now_s,
                          .priority = priority})
                    .ok());
  };
  add(1, 0, 0);
  add(2, 1, 2);
  add(3, 2, 1);
  add(4, 3, 1);
  add(5, 4, -1);
  add(6, 12.5, 1);  // 11.5 s after 2, which has aged by more than one level
  for (const SequenceId id : {5u, 1u, 3u, 4u, 2u, 6u}) EXPECT_EQ(only_run(scheduler, 13), id);
}

TEST(Acceptance, PriorityTakesASlotFromOneThatCanWait) {
  Scheduler scheduler(limits(2, 16, 16));
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 4, .max_tokens = 20, .priority = 0}).ok());
  ASSERT_TRUE(scheduler.add({.id = 2, .prompt_tokens = 4, .max_tokens = 20, .priority = 5}).ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(scheduler.add({.id = 3, .prompt_tokens = 4, .max_tokens = 20, .priority = 0}).ok());
  const Decision& decision = scheduler.decide(0);
  EXPECT_EQ(text(decision), "1[4,5)* 3[0,4)*");
  EXPECT_EQ(decision.preempted, std::vector<SequenceId>{2});
  go_on(scheduler, decision);
  ASSERT_TRUE(scheduler.add({.id = 4, .prompt_tokens = 4, .max_tokens = 20, .priority = 0}).ok());
  EXPECT_EQ(text(scheduler.decide(0)), "1[5,6)* 3[4,5)*") << "equals do not make way";
}

TEST(Acceptance, PriorityTakesBlocksOnlyIfTheySuffice) {
  Scheduler scheduler(limits(4, 64, 10));
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 19, .max_tokens = 20, .priority = 0}).ok());
  ASSERT_TRUE(scheduler.add({.id = 2, .prompt_tokens = 8, .max_tokens = 20, .priority = 5}).ok());
  go_on(scheduler, scheduler.decide(0));
  // Needs 6 blocks and one to spare; without 2 there would be 5.
  ASSERT_TRUE(scheduler.add({.id = 3, .prompt_tokens = 24, .max_tokens = 28, .priority = 0}).ok());
  EXPECT_EQ(text(scheduler.decide(0)), "1[19,20)* 2[8,9)*");
  scheduler = Scheduler(limits(4, 64, 12));
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 19, .max_tokens = 20, .priority = 0}).ok());
  ASSERT_TRUE(scheduler.add({.id = 2, .prompt_tokens = 8, .max_tokens = 20, .priority = 5}).ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(scheduler.add({.id = 3, .prompt_tokens = 24, .max_tokens = 28, .priority = 0}).ok());
  EXPECT_EQ(text(scheduler.decide(0)), "1[19,20)* 3[0,24)*");
}

/// Blocks that the urgent one would share with its victim make no room for it.
TEST(Acceptance, PriorityTakesNothingInVainFromOneOfTheSamePrefix) {
  Scheduler scheduler(limits(4, 64, 6));
  const std::vector<BlockKey> victim = keys_of(12, 12, 2), urgent = keys_of(17, 12, 3);
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 4, .max_tokens = 20}).ok());
  ASSERT_TRUE(
      scheduler.add({.id = 2, .prompt_tokens = 12, .max_tokens = 20, .priority = 5, .keys = victim})
          .ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(
      scheduler.add({.id = 3, .prompt_tokens = 17, .max_tokens = 20, .priority = 0, .keys = urgent})
          .ok());
  EXPECT_EQ(text(scheduler.decide(0)), "1[4,5)* 2[12,13)*");
}

TEST(Acceptance, PriorityComesFirstInTheTokenBudgetToo) {
  Scheduler scheduler(limits(4, 8, 40));
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 40, .max_tokens = 44, .priority = 3}).ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(scheduler.add({.id = 2, .prompt_tokens = 6, .max_tokens = 10, .priority = 0}).ok());
  EXPECT_EQ(text(scheduler.decide(0)), "2[0,6)* 1[8,10)");
}

/// One who has aged past an urgent request does not take from it what it has, nor make it stand still.
TEST(Acceptance, PriorityThatAgedTakesNothingFromTheUrgent) {
  Limits one_at_a_time = limits(1, 8, 16);
  one_at_a_time.ageing_s = 1;
  Scheduler scheduler(one_at_a_time);
  ASSERT_TRUE(
      scheduler.add({.id = 1, .prompt_tokens = 20, .max_tokens = 40, .now_s = 6, .priority = 0})
          .ok());
  go_on(scheduler, scheduler.decide(6));
  // As if it had been held up on its way: it was sent before, and comes first by now.
  ASSERT_TRUE(
      scheduler.add({.id = 2, .prompt_tokens = 4, .max_tokens = 40, .now_s = 0, .priority = 5})
          .ok());
  for (const char* expected : {"1[8,16)", "1[16,20)*", "1[20,21)*"}) {
    const Decision& decision = scheduler.decide(7);
    EXPECT_EQ(text(decision), expected);
    EXPECT_TRUE(decision.preempted.empty());
    go_on(scheduler, decision);
  }
  scheduler.cancel(1);
  EXPECT_EQ(text(scheduler.decide(7)), "2[0,4)*");
}

/// An urgent stream of requests cannot keep another waiting for ever: it ages past them.
TEST(Acceptance, PriorityAgesSoThatNobodyStarves) {
  Limits one_at_a_time = limits(1, 8, 16);
  one_at_a_time.ageing_s = 1;
  Scheduler scheduler(one_at_a_time);
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 2, .max_tokens = 4, .priority = 5}).ok());
  double now_s = 0;
  for (SequenceId id = 2; id < 100; ++id, now_s += 0.1) {
    ASSERT_TRUE(
        scheduler
            .add({.id = id, .prompt_tokens = 2, .max_tokens = 4, .now_s = now_s, .priority = 0})
            .ok());
    if (only_run(scheduler, now_s) != 1) continue;
    EXPECT_NEAR(now_s, 5, 0.2);
    return;
  }
  FAIL() << "starved";
}

TEST(Acceptance, PriorityOutOfRangeIsRefused) {
  Scheduler scheduler(limits(1, 8, 16));
  const Status refused =
      scheduler.add({.id = 1, .prompt_tokens = 2, .max_tokens = 4, .priority = 1001});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::bad_request);
  EXPECT_NE(refused.error().message.find("priority is 1001"), std::string::npos);
}

/// Queue and total: who misses one is named once, and its blocks are free.
TEST(Acceptance, Deadlines) {
  Scheduler scheduler(limits(1, 8, 16));
  const auto add = [&](SequenceId id, double queue_deadline_s, double deadline_s) {
    ASSERT_TRUE(scheduler
                    .add({.id = id,
                          .prompt_tokens = 4,
                          .max_tokens = 40,
                          .queue_deadline_s = queue_deadline_s,
                          .deadline_s = deadline_s})
                    .ok());
  };
  add(1, 1, 3);       // starts in time, but does not end in time
  add(2, 2, 10);      // does not start in time
  add(3, kNever, 2);  // the same by the other deadline
  add(4, 5, kNever);
  const auto step = [&](double now_s) {
    const Decision& decision = scheduler.decide(now_s);
    std::string gone;
    for (const Decision::Expiry& one : decision.expired)
      gone += fmt::format("{}{} ", one.id, one.deadline == Deadline::queue ? "q" : "t");
    const std::string runs = text(decision);
    if (!decision.idle()) go_on(scheduler, decision);
    return gone + runs;
  };
  EXPECT_EQ(step(0), "1[0,4)*");
  EXPECT_EQ(step(1.5), "1[4,5)*") << "the deadline of the queue is met by the first step";
  EXPECT_EQ(step(2), "2q 3t 1[5,6)*");
  EXPECT_EQ(scheduler.find(2), nullptr);
  EXPECT_EQ(step(3), "1t 4[0,4)*");
  EXPECT_EQ(scheduler.counts().blocks_used, 1);
  EXPECT_EQ(step(100), "4[4,5)*");
  EXPECT_EQ(scheduler.counts().running + scheduler.counts().waiting, 1);
}

TEST(Acceptance, DeadlinesSayWhenToDecideAgain) {
  Limits waiting = limits(2, 8, 16);
  waiting.min_decode_batch = 2;
  waiting.decode_wait_s = 10;
  Scheduler scheduler(waiting);
  EXPECT_EQ(scheduler.decide(0).wake_s, kNever);
  ASSERT_TRUE(scheduler.add({.id = 1, .prompt_tokens = 4, .max_tokens = 40, .deadline_s = 3}).ok());
  go_on(scheduler, scheduler.decide(0));
  const Decision& held = scheduler.decide(1);
  EXPECT_TRUE(held.idle());
  EXPECT_EQ(held.wake_s, 3) << "before the wait for company ends";
}

/// Small decoding steps wait for company, but never longer than was said.
TEST(Acceptance, MinimumDecodeBatchWait) {
  Limits waiting = limits(4, 16, 40);
  waiting.min_decode_batch = 2;
  waiting.decode_wait_s = 0.005;
  Scheduler scheduler(waiting);
  ASSERT_TRUE(scheduler.add({1, 4, 40, 0}).ok());
  go_on(scheduler, scheduler.decide(1.0));  // a prompt never waits
  const Decision& held = scheduler.decide(1.001);
  EXPECT_TRUE(held.idle());
  EXPECT_DOUBLE_EQ(held.wake_s, 1.006);
  EXPECT_TRUE(scheduler.decide(1.004).idle());
  const Decision& alone = scheduler.decide(1.006);
  EXPECT_EQ(text(alone), "1[4,5)*");
  go_on(scheduler, alone);
  EXPECT_TRUE(scheduler.decide(1.007).idle());
  ASSERT_TRUE(scheduler.add({2, 4, 40, 1.008}).ok());
  const Decision& company = scheduler.decide(1.008);
  EXPECT_EQ(text(company), "1[5,6)* 2[0,4)*");
  go_on(scheduler, company);
  EXPECT_EQ(text(scheduler.decide(1.009)), "1[6,7)* 2[4,5)*");
  EXPECT_EQ(scheduler.counts().held_steps, 2u);
}

TEST(Acceptance, MinimumDecodeBatchWaitsOnlyForWhoCanCome) {
  Limits waiting = limits(2, 16, 40);
  waiting.min_decode_batch = 3;
  waiting.decode_wait_s = 1;
  Scheduler scheduler(waiting);
  for (SequenceId id = 1; id <= 2; ++id) ASSERT_TRUE(scheduler.add({id, 4, 40, 0}).ok());
  go_on(scheduler, scheduler.decide(0));
  EXPECT_FALSE(scheduler.decide(0).idle()) << "all slots are taken";
}

TEST(Acceptance, ExpertsTouchedAreReportedToTheNextDecision) {
  Scheduler scheduler(limits(1, 8, 16));
  ASSERT_TRUE(scheduler.add({1, 4, 40, 0}).ok());
  const Decision& first = scheduler.decide(0);
  EXPECT_EQ(first.experts_touched, 0);
  scheduler.commit(first, std::vector<Outcome>{Outcome::goes_on}, {.experts_touched = 6.5});
  EXPECT_EQ(scheduler.decide(0).experts_touched, 6.5);
}

}  // namespace
}  // namespace switchyard::schedule
