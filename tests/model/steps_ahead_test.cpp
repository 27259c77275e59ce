// SPDX-License-Identifier: Apache-2.0
#include "model/steps_ahead.h"

#include <gtest/gtest.h>

namespace switchyard::model {
namespace {

constexpr int64_t kMs = 1'000'000;

void expect_counts(const StepsAhead& ahead, uint64_t used, uint64_t wasted, uint64_t failed) {
  EXPECT_EQ(ahead.counts().used, used);
  EXPECT_EQ(ahead.counts().wasted, wasted);
  EXPECT_EQ(ahead.counts().failed, failed);
}

int steps_until_the_next(StepsAhead& ahead) {
  int steps = 0;
  while (!ahead.decide_by(0, 1) && steps < 10'000) ++steps;
  return steps;
}

TEST(StepsAhead, NoneBeforeAStepsTimeIsKnown) {
  StepsAhead ahead;
  EXPECT_FALSE(ahead.decide_by(0, 1));
  ahead.learn(1, 10 * kMs);
  EXPECT_TRUE(ahead.decide_by(0, 1));
  EXPECT_FALSE(ahead.decide_by(0, 2)) << "of another size nothing is known";
}

// A twentieth of the step before its end, and no less than 150 us.
TEST(StepsAhead, TheDecisionIsLeftOpenUntilShortlyBeforeTheEnd) {
  StepsAhead ahead;
  ahead.learn(1, 10 * kMs);
  ahead.learn(2, kMs);
  EXPECT_EQ(ahead.decide_by(5, 1), 5 + 10 * kMs - kMs / 2);
  EXPECT_EQ(ahead.decide_by(5, 2), 5 + kMs - 150'000);
}

// Whatever the clock says meanwhile: also of a step that ended long ago.
TEST(StepsAhead, TheDecisionDoesNotDependOnTheTime) {
  StepsAhead ahead;
  ahead.learn(1, 1);
  for (const int64_t begun : {int64_t{0}, kMs, int64_t{1} << 60})
    EXPECT_TRUE(ahead.decide_by(begun, 1)) << begun;
}

TEST(StepsAhead, AShorterStepIsLearntAtOnceAndALongerOneSlowly) {
  StepsAhead ahead;
  ahead.learn(1, 8 * kMs);
  ahead.learn(1, 4 * kMs);
  EXPECT_EQ(ahead.decide_by(0, 1), 4 * kMs - 4 * kMs / 20);
  ahead.learn(1, 12 * kMs);
  EXPECT_EQ(ahead.decide_by(0, 1), 5 * kMs - 5 * kMs / 20) << "an eighth of what is more";
}

TEST(StepsAhead, OneThatIsAskedForIsUsedAndTheNextMayFollow) {
  StepsAhead ahead;
  ahead.learn(1, kMs);
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_TRUE(ahead.decide_by(0, 1));
    ahead.went();
    EXPECT_TRUE(ahead.queued());
    ahead.take(true, true);
    EXPECT_FALSE(ahead.queued());
    expect_counts(ahead, i, 0, 0);
  }
  ahead.take(false, true);  // nothing was queued
  expect_counts(ahead, 3, 0, 0);
  EXPECT_TRUE(ahead.decide_by(0, 1)) << "and no pause follows";
}

TEST(StepsAhead, APauseFollowsOneThatADecodeStepWaitedFor) {
  StepsAhead ahead;
  ahead.learn(1, kMs);
  ahead.went();
  ahead.take(false, true);
  expect_counts(ahead, 0, 1, 0);
  EXPECT_EQ(steps_until_the_next(ahead), StepsAhead::kPauseAfterWaste);
  ahead.went();
  ahead.take(false, false);  // a prompt: a newcomer seldom says that there will be more
  expect_counts(ahead, 0, 2, 0);
  EXPECT_EQ(steps_until_the_next(ahead), 0);
}

TEST(StepsAhead, ALongPauseFollowsLogitsThatWereMadeAgain) {
  StepsAhead ahead;
  ahead.learn(1, kMs);
  ahead.went();
  ahead.repeat();
  expect_counts(ahead, 0, 1, 0);
  ahead.take(false, true);  // must not shorten it
  EXPECT_EQ(steps_until_the_next(ahead), StepsAhead::kPauseAfterRepeat);
}

TEST(StepsAhead, NoneGoesAfterOneCouldNotBeQueued) {
  StepsAhead ahead;
  ahead.learn(1, kMs);
  ahead.failed();
  EXPECT_FALSE(ahead.queued());
  ahead.learn(1, kMs);
  EXPECT_EQ(steps_until_the_next(ahead), 10'000);
  expect_counts(ahead, 0, 0, 1);
}

TEST(StepsAhead, AnErrorForgetsTheQueuedOne) {
  StepsAhead ahead;
  ahead.learn(1, kMs);
  ahead.went();
  ahead.forget();
  EXPECT_FALSE(ahead.queued());
  ahead.forget();
  expect_counts(ahead, 0, 1, 0);
  EXPECT_TRUE(ahead.decide_by(0, 1)) << "the next one may go";
}

}  // namespace
}  // namespace switchyard::model
