// SPDX-License-Identifier: Apache-2.0
// The scheduler's rules one by one, on cases small enough to be followed by hand.
#include "schedule/scheduler.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/small_cases.h"

namespace switchyard::schedule {
namespace {

TEST(SchedulerLimits, RefuseWhatWouldWaitForEver) {
  EXPECT_TRUE(limits(4, 4, 1).check().ok());
  EXPECT_FALSE(limits(0, 4, 1).check().ok());
  EXPECT_FALSE(limits(4, 3, 1).check().ok());
  EXPECT_FALSE(limits(4, 4, 0).check().ok());
  EXPECT_FALSE(limits(4, 4, 1, 0).check().ok());
  const auto with = [](auto change) {
    Limits changed = limits(4, 4, 1);
    change(changed);
    return changed.check().ok();
  };
  EXPECT_FALSE(with([](Limits& l) { l.ageing_s = 0; }));
  EXPECT_FALSE(with([](Limits& l) { l.ageing_s = kNever; }));
  EXPECT_FALSE(with([](Limits& l) { l.min_decode_batch = -1; }));
  EXPECT_FALSE(with([](Limits& l) { l.decode_wait_s = -0.1; }));
  EXPECT_FALSE(with([](Limits& l) { l.decode_wait_s = kNever; }));
}

TEST(Scheduler, PromptIsCutIntoChunksThenDecodes) {
  Scheduler scheduler(limits(2, 4, 10));
  ASSERT_TRUE(scheduler.add({1, 9, 20, 0}).ok());
  for (const char* expected : {"1[0,4)", "1[4,8)", "1[8,9)*", "1[9,10)*", "1[10,11)*"}) {
    const Decision& decision = scheduler.decide(0);
    EXPECT_EQ(text(decision), expected);
    go_on(scheduler, decision);
  }
}

TEST(Scheduler, DecodingComesBeforePromptsInOneBudget) {
  Scheduler scheduler(limits(4, 6, 20));
  ASSERT_TRUE(scheduler.add({1, 2, 20, 0}).ok());
  go_on(scheduler, scheduler.decide(0));
  ASSERT_TRUE(scheduler.add({2, 7, 20, 0}).ok());
  ASSERT_TRUE(scheduler.add({3, 3, 20, 0}).ok());
  const Decision& first = scheduler.decide(0);
  EXPECT_EQ(text(first), "1[2,3)* 2[0,5)");
  EXPECT_FALSE(first.decode_only);
  EXPECT_EQ(first.num_tokens, 6);
  EXPECT_EQ(first.num_samples, 1);
  go_on(scheduler, first);
  const Decision& second = scheduler.decide(0);
  EXPECT_EQ(text(second), "1[3,4)* 2[5,7)* 3[0,3)*");
  go_on(scheduler, second);
  const Decision& third = scheduler.decide(0);
  EXPECT_EQ(text(third), "1[4,5)* 2[7,8)* 3[3,4)*");
  EXPECT_TRUE(third.decode_only);
}

TEST(Scheduler, FirstComeFirstServedWithinSlots) {
  Scheduler scheduler(limits(2, 8, 20));
  for (SequenceId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add({id, 2, 8, 0}).ok());
  const Decision& first = scheduler.decide(0);
  EXPECT_EQ(text(first), "1[0,2)* 2[0,2)*");
  scheduler.commit(first, std::vector<Outcome>{Outcome::ended, Outcome::goes_on});
  EXPECT_EQ(text(scheduler.decide(0)), "2[2,3)* 3[0,2)*");
}

TEST(Scheduler, AdmitsOnlyWithBlocksAndOneToSparePerRunningSequence) {
  Scheduler scheduler(limits(4, 16, 4));
  ASSERT_TRUE(scheduler.add({1, 8, 16, 0}).ok());  // two blocks
  ASSERT_TRUE(scheduler.add({2, 8, 16, 0}).ok());  // two more would leave none to spare
  go_on(scheduler, scheduler.decide(0));
  EXPECT_EQ(scheduler.find(2)->state, Sequence::State::waiting);
  EXPECT_EQ(scheduler.counts().blocks_used, 2);
}

TEST(Scheduler, PreemptsTheNewestWhenBlocksRunOut) {
  Scheduler scheduler(limits(4, 16, 3));
  ASSERT_TRUE(scheduler.add({1, 4, 12, 0}).ok());
  ASSERT_TRUE(scheduler.add({2, 3, 12, 0}).ok());
  const Decision& first = scheduler.decide(0);
  EXPECT_EQ(text(first), "1[0,4)* 2[0,3)*");
  go_on(scheduler, first);
  const Decision& second = scheduler.decide(0);  // sequence 1 takes the last block
  EXPECT_EQ(text(second), "1[4,5)* 2[3,4)*");
  go_on(scheduler, second);
  const Decision& third = scheduler.decide(0);  // sequence 2 needs one: it is itself the newest
  EXPECT_EQ(text(third), "1[5,6)*");
  EXPECT_EQ(third.preempted, std::vector<SequenceId>{2});
  EXPECT_EQ(scheduler.counts().preemptions, 1u);
  EXPECT_EQ(scheduler.find(2)->computed_tokens, 0);
  EXPECT_EQ(scheduler.find(2)->known_tokens, 5);
  scheduler.commit(third, std::vector<Outcome>{Outcome::ended});
  EXPECT_EQ(text(scheduler.decide(0)), "2[0,5)*");  // all of it once more, then the next token
  EXPECT_EQ(scheduler.counts().recomputed_tokens, 4u);
}

TEST(Scheduler, OlderSequenceTakesTheBlocksOfANewerOne) {
  Scheduler scheduler(limits(4, 16, 4));
  ASSERT_TRUE(scheduler.add({1, 7, 16, 0}).ok());
  ASSERT_TRUE(scheduler.add({2, 4, 16, 0}).ok());
  go_on(scheduler, scheduler.decide(0));
  go_on(scheduler, scheduler.decide(0));  // 2 grows into the last block
  ASSERT_EQ(scheduler.counts().blocks_free, 0);
  const Decision& decision = scheduler.decide(0);  // now 1 needs one
  EXPECT_EQ(text(decision), "1[8,9)*");
  EXPECT_EQ(decision.preempted, std::vector<SequenceId>{2});
}

TEST(Scheduler, CancelFreesBlocksInEveryState) {
  Scheduler scheduler(limits(2, 4, 10));
  for (SequenceId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add({id, 6, 12, 0}).ok());
  go_on(scheduler, scheduler.decide(0));  // 1 in the middle of its prompt
  EXPECT_TRUE(scheduler.cancel(3));       // waiting
  EXPECT_TRUE(scheduler.cancel(1));       // running
  EXPECT_FALSE(scheduler.cancel(1));      // gone
  EXPECT_EQ(scheduler.counts().blocks_used, 0);
  EXPECT_EQ(text(scheduler.decide(0)), "2[0,4)");
}

TEST(Scheduler, RefusesWhatCouldNeverFit) {
  Scheduler scheduler(limits(2, 4, 3));
  const Status status = scheduler.add({1, 6, 13, 0});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::bad_request);
  EXPECT_NE(status.error().message.find("13 tokens"), std::string::npos);
  EXPECT_NE(status.error().message.find("holds 12"), std::string::npos);
  EXPECT_TRUE(scheduler.add({1, 6, 12, 0}).ok());
}

TEST(Scheduler, NotesTimes) {
  Scheduler scheduler(limits(1, 4, 10));
  ASSERT_TRUE(scheduler.add({1, 2, 4, 10.0}).ok());
  ASSERT_TRUE(scheduler.add({2, 2, 4, 11.0}).ok());
  scheduler.commit(scheduler.decide(12.5), std::vector<Outcome>{Outcome::goes_on});
  EXPECT_EQ(scheduler.find(1)->first_run_s, 12.5);
  EXPECT_LT(scheduler.find(2)->first_run_s, 0);
}

TEST(Scheduler, IdleWithoutWork) {
  Scheduler scheduler(limits(1, 4, 10));
  EXPECT_TRUE(scheduler.decide(0).idle());
  EXPECT_TRUE(scheduler.decide(0).idle());
}

TEST(SchedulerDeathTest, MisuseAborts) {
  Scheduler scheduler(limits(1, 4, 10));
  ASSERT_TRUE(scheduler.add({2, 2, 4, 0}).ok());
  EXPECT_DEATH((void)scheduler.add({2, 2, 4, 0}), "sequence 2 after 2");
  EXPECT_DEATH(
      (void)scheduler.add({.id = 3, .prompt_tokens = 3, .max_tokens = 8, .keys = keys_of(4, 4, 0)}),
      "1 keys for a prompt of 3");
  const Decision& decision = scheduler.decide(0);
  EXPECT_DEATH((void)scheduler.decide(0), "not committed");
  EXPECT_DEATH((void)scheduler.cancel(2), "inside a step");
  EXPECT_DEATH(scheduler.commit(decision, {}), "0 outcomes for 1 runs");
}

}  // namespace
}  // namespace switchyard::schedule
