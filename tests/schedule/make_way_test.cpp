// SPDX-License-Identifier: Apache-2.0
// Who makes way for an urgent request, when nobody does since it would be in vain, and when one who was turned back is
// tried again.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/small_cases.h"

namespace switchyard::schedule {
namespace {

struct MakeWay : ::testing::Test {
  Scheduler scheduler{limits(1, 1, 1)};
  SequenceId last = 0;

  void begin(const Limits& limits) { scheduler = Scheduler(limits); }
  void add(int priority, int prompt, int max_tokens, const std::vector<BlockKey>& keys = {}) {
    ASSERT_TRUE(scheduler
                    .add({.id = ++last,
                          .prompt_tokens = prompt,
                          .max_tokens = max_tokens,
                          .priority = priority,
                          .keys = keys})
                    .ok());
  }
  /// Runs of a step, and behind them who was preempted: "1[0,4)* -2".
  std::string step() {
    const Decision& decision = scheduler.decide(0);
    std::string said = text(decision);
    for (const SequenceId id : decision.preempted) said += fmt::format(" -{}", id);
    if (!decision.idle()) go_on(scheduler, decision);
    return said;
  }
};

/// The blocks that decoding sequences take in this very step are not there for the urgent one.
TEST_F(MakeWay, NobodyLeavesForBlocksThatOthersGrowInto) {
  begin(limits(4, 64, 6));
  add(0, 4, 24);
  add(5, 12, 20);
  EXPECT_EQ(step(), "1[0,4)* 2[0,12)*");
  add(0, 16, 20);  // without 2 there are 5 blocks: 1 takes one, one is to spare, 4 are needed
  EXPECT_EQ(step(), "1[4,5)* 2[12,13)*");
  EXPECT_EQ(step(), "1[5,6)* 2[13,14)*");
  scheduler.cancel(1);
  EXPECT_EQ(step(), "3[0,16)* -2") << "now it suffices";
}

/// One who would have grown needs no block any more when it has left.
TEST_F(MakeWay, VictimsGiveBackWhatTheyWouldHaveGrownInto) {
  begin(limits(4, 64, 7));
  add(0, 4, 24);
  add(5, 12, 20);
  EXPECT_EQ(step(), "1[0,4)* 2[0,12)*");
  add(0, 16, 20);
  EXPECT_EQ(step(), "1[4,5)* 3[0,16)* -2");
}

TEST_F(MakeWay, NobodyLeavesWhenAPromptBeforeTakesAllTokens) {
  begin(limits(2, 16, 64));
  add(5, 4, 40);
  EXPECT_EQ(step(), "1[0,4)*");
  add(0, 40, 48);
  EXPECT_EQ(step(), "1[4,5)* 2[0,15)");
  add(0, 10, 20);
  EXPECT_EQ(step(), "1[5,6)* 2[15,30)");
  EXPECT_EQ(step(), "2[30,40)* 3[0,6) -1") << "as soon as there are tokens for it";
}

TEST_F(MakeWay, NobodyLeavesForOneWhoWaitsForItsPrefix) {
  begin(limits(2, 16, 64));
  const std::vector<BlockKey> keys = keys_of(20, 20, 0);
  add(5, 4, 40);
  EXPECT_EQ(step(), "1[0,4)*");
  add(0, 20, 40, keys);
  EXPECT_EQ(step(), "1[4,5)* 2[0,15)");
  add(0, 20, 40, keys);
  EXPECT_EQ(step(), "1[5,6)* 2[15,20)*") << "3 is about to find one block more";
  EXPECT_EQ(step(), "2[20,21)* 3[16,20)* -1");
}

/// What was in vain is tried again when more of the urgent one's prefix is there, though nobody has come or gone.
TEST_F(MakeWay, ALongerPrefixIsAReasonToTryAgain) {
  begin(limits(4, 12, 13));
  add(5, 4, 40);
  EXPECT_EQ(step(), "1[0,4)*");
  add(0, 20, 40, keys_of(20, 20, 2));
  add(0, 40, 44, keys_of(40, 20, 3));
  EXPECT_EQ(step(), "1[4,5)* 2[0,11)");
  EXPECT_EQ(step(), "1[5,6)* 2[11,20)*") << "8 blocks more, for 3, would not be there without 1";
  EXPECT_EQ(step(), "2[20,21)* 3[20,31) -1") << "but 5 are";
}

/// An urgent one comes in past one who was turned back, and takes cached blocks into use that this one would have had to:
/// it fits with less room than it found.
TEST_F(MakeWay, OneWhoComesInMayMakeAnotherFit) {
  begin(limits(4, 64, 10));
  add(0, 12, 16, keys_of(12, 12, 1));
  commit_all(scheduler, scheduler.decide(0), Outcome::ended);
  add(0, 9, 16);
  EXPECT_EQ(step(), "2[0,9)*");
  add(0, 28, 32, keys_of(28, 12, 3));
  EXPECT_EQ(step(), "2[9,10)*");
  add(-1, 13, 16, keys_of(13, 12, 4));
  EXPECT_EQ(step(), "2[10,11)* 4[12,13)*");
  scheduler.cancel(2);
  EXPECT_EQ(step(), "4[13,14)* 3[12,28)*");
}

/// The same when it was not even tried in the step of the urgent one, which has used all tokens.
TEST_F(MakeWay, OneWhoComesInMayMakeAnotherFitLater) {
  begin(limits(4, 4, 10));
  add(0, 12, 16, keys_of(12, 12, 1));
  for (const char* expected : {"1[0,4)", "1[4,8)", "1[8,12)*"}) EXPECT_EQ(step(), expected);
  scheduler.cancel(1);
  add(0, 9, 16);
  for (const char* expected : {"2[0,4)", "2[4,8)", "2[8,9)*"}) EXPECT_EQ(step(), expected);
  add(0, 28, 32, keys_of(28, 12, 3));
  EXPECT_EQ(step(), "2[9,10)*");
  add(-1, 15, 20, keys_of(15, 12, 4));
  EXPECT_EQ(step(), "2[10,11)* 4[12,15)*");
  scheduler.cancel(2);
  EXPECT_EQ(step(), "4[15,16)* 3[12,15)");
}

/// And when it takes a victim besides.
TEST_F(MakeWay, OneWhoComesInMayMakeAWayForAnother) {
  begin(limits(4, 64, 11));
  add(0, 12, 16, keys_of(12, 12, 1));
  commit_all(scheduler, scheduler.decide(0), Outcome::ended);
  add(0, 9, 16);
  add(5, 4, 16);
  EXPECT_EQ(step(), "2[0,9)* 3[0,4)*");
  add(0, 32, 36, keys_of(32, 12, 4));
  EXPECT_EQ(step(), "2[9,10)* 3[4,5)*");
  add(-1, 13, 16, keys_of(13, 12, 5));
  EXPECT_EQ(step(), "2[10,11)* 3[5,6)* 5[12,13)*");
  scheduler.cancel(2);
  EXPECT_EQ(step(), "5[13,14)* 4[12,32)* -3");
}

}  // namespace
}  // namespace switchyard::schedule
