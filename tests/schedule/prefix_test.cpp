// SPDX-License-Identifier: Apache-2.0
// Shared prefixes: what is found, what is computed all the same, and what is never shared.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/small_cases.h"

namespace switchyard::schedule {
namespace {

struct Cache : ::testing::Test {
  Scheduler scheduler{limits(4, 64, 16)};
  SequenceId last = 0;

  /// A prompt whose first `common` tokens are everybody's.
  SequenceId add(int prompt, int common, int max_tokens = 40) {
    const std::vector<BlockKey> keys = keys_of(prompt, common, static_cast<int>(++last));
    EXPECT_TRUE(
        scheduler.add({.id = last, .prompt_tokens = prompt, .max_tokens = max_tokens, .keys = keys})
            .ok());
    return last;
  }
  std::string step(Outcome outcome) {
    const Decision& decision = scheduler.decide(0);
    const std::string runs = text(decision);
    if (!decision.idle()) commit_all(scheduler, decision, outcome);
    return runs;
  }
};

TEST_F(Cache, SharesTheFullBlocksOfAnEndedRequest) {
  add(11, 9);
  EXPECT_EQ(step(Outcome::ended), "1[0,11)*");
  EXPECT_EQ(scheduler.counts().blocks_cached, 2);
  EXPECT_EQ(scheduler.counts().blocks_free, 14);
  add(11, 9);
  EXPECT_EQ(step(Outcome::goes_on), "2[8,11)*");
  EXPECT_EQ(scheduler.find(2)->cached_tokens, 8);
  EXPECT_EQ(scheduler.counts().prefix_query_tokens, 22u);
  EXPECT_EQ(scheduler.counts().prefix_hit_tokens, 8u);
}

TEST_F(Cache, SharesWithOneWhoStillRuns) {
  add(9, 8);
  step(Outcome::goes_on);
  add(10, 8);
  EXPECT_EQ(step(Outcome::goes_on), "1[9,10)* 2[8,10)*");
  const Sequence &one = *scheduler.find(1), &two = *scheduler.find(2);
  EXPECT_EQ(one.blocks[0], two.blocks[0]);
  EXPECT_EQ(one.blocks[1], two.blocks[1]);
  EXPECT_NE(one.blocks[2], two.blocks[2]);
  EXPECT_EQ(scheduler.counts().blocks_used, 4);
  scheduler.cancel(1);
  EXPECT_EQ(scheduler.counts().blocks_used, 3);
  EXPECT_EQ(scheduler.counts().blocks_cached, 0);
}

/// The case of ROCm/aiter#4032: everything but one token is in the cache.
TEST_F(Cache, OneTokenRemainder) {
  add(9, 9);
  step(Outcome::ended);
  add(9, 9);
  const Decision& decision = scheduler.decide(0);
  EXPECT_EQ(text(decision), "2[8,9)*");
  EXPECT_EQ(decision.num_decodes, 0) << "one token, but of a prompt";
  EXPECT_TRUE(decision.decode_only) << "to the model it is a decoding step";
}

TEST_F(Cache, WhollyKnownPromptComputesItsLastBlockAnew) {
  add(8, 8);
  step(Outcome::goes_on);
  add(8, 8);
  EXPECT_EQ(step(Outcome::goes_on), "1[8,9)* 2[4,8)*");
  EXPECT_NE(scheduler.find(1)->blocks[1], scheduler.find(2)->blocks[1])
      << "nobody writes into a shared block";
}

TEST_F(Cache, ABlockThatIsStillWrittenIsNeverShared) {
  scheduler = Scheduler(limits(4, 6, 16));
  add(20, 20);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,6)");
  add(28, 28);  // so long that it does not wait for the fifth block of 1, which it could share
  EXPECT_EQ(step(Outcome::goes_on), "1[6,12)");
  EXPECT_EQ(step(Outcome::goes_on), "1[12,18)");
  EXPECT_EQ(step(Outcome::goes_on), "1[18,20)* 2[16,20)") << "that block was half written";
  EXPECT_NE(scheduler.find(1)->blocks[4], scheduler.find(2)->blocks[4]);
}

TEST_F(Cache, AnswersAreSharedToo) {
  add(6, 20);
  step(Outcome::goes_on);
  const std::vector<BlockKey> keys = keys_of(12, 20, 1);
  for (int known = 7; known < 12; ++known) {
    const Decision& decision = scheduler.decide(0);
    if ((known + 1) % 4 == 0) scheduler.add_key(1, keys[static_cast<size_t>((known + 1) / 4 - 1)]);
    go_on(scheduler, decision);
  }
  EXPECT_EQ(step(Outcome::ended), "1[11,12)*");
  EXPECT_EQ(scheduler.counts().blocks_cached, 3);
  add(14, 20);  // the next turn of the same conversation
  EXPECT_EQ(step(Outcome::ended), "2[12,14)*");
}

TEST_F(Cache, AFailedStepLeavesNothingToShare) {
  add(11, 11);
  step(Outcome::failed);
  EXPECT_EQ(scheduler.counts().blocks_free, 16);
  add(11, 11);
  EXPECT_EQ(step(Outcome::goes_on), "2[0,11)*");
  add(11, 11);
  EXPECT_EQ(step(Outcome::failed), "2[11,12)* 3[8,11)*");
  add(11, 11);
  EXPECT_EQ(step(Outcome::ended), "4[0,11)*") << "blocks that a failed run has read may be wrong";
}

TEST_F(Cache, WithoutKeysNothingIsSharedOrOffered) {
  for (SequenceId id = 1; id <= 2; ++id) {
    ASSERT_TRUE(scheduler.add({id, 11, 20, 0}).ok());
    EXPECT_EQ(step(Outcome::ended), fmt::format("{}[0,11)*", id));
  }
  EXPECT_EQ(scheduler.counts().blocks_free, 16);
  EXPECT_EQ(scheduler.counts().prefix_query_tokens, 0u);
}

TEST_F(Cache, UnusedBlocksGiveWayOldestFirst) {
  for (int i = 0; i < 3; ++i) {
    add(16, 0, 17);
    step(Outcome::ended);
  }
  EXPECT_EQ(scheduler.counts().blocks_cached, 12);
  add(32, 0, 33);  // 8 blocks of 16: 4 were free, 4 are those of request 1
  step(Outcome::goes_on);
  EXPECT_EQ(scheduler.counts().evictions, 4u);
  EXPECT_EQ(scheduler.counts().blocks_cached, 8);
  scheduler.cancel(4);
  for (const auto& [who, first_token] : {std::pair{2, 12}, {3, 12}, {1, 0}}) {
    const std::vector<BlockKey> keys = keys_of(16, 0, who);
    ASSERT_TRUE(
        scheduler.add({.id = ++last, .prompt_tokens = 16, .max_tokens = 17, .keys = keys}).ok());
    const Decision& decision = scheduler.decide(0);
    EXPECT_EQ(decision.runs[0].first_token, first_token) << "request " << who;
    commit_all(scheduler, decision, Outcome::failed);
  }
}

TEST_F(Cache, PreemptedSequenceFindsWhatIsLeftOfItself) {
  scheduler = Scheduler(limits(2, 64, 6));
  add(9, 0, 24);
  step(Outcome::goes_on);
  add(8, 0, 12);
  for (const char* expected : {"1[9,10)* 2[0,8)*", "1[10,11)* 2[8,9)*", "1[11,12)* 2[9,10)*"})
    EXPECT_EQ(step(Outcome::goes_on), expected);
  EXPECT_EQ(step(Outcome::goes_on), "1[12,13)*") << "takes the third block of 2";
  EXPECT_EQ(scheduler.counts().preemptions, 1u);
  scheduler.cancel(1);
  EXPECT_EQ(step(Outcome::goes_on), "2[8,11)*") << "its first two blocks were still there";
  EXPECT_EQ(scheduler.counts().recomputed_tokens, 2u);
  EXPECT_EQ(scheduler.find(2)->cached_tokens, 0) << "found nothing when it came";
}

TEST_F(Cache, OfABurstThatBeginsAlikeOneComputesTheBeginning) {
  for (int i = 0; i < 4; ++i) add(11, 9);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,11)*");
  EXPECT_EQ(step(Outcome::goes_on), "1[11,12)* 2[8,11)* 3[8,11)* 4[8,11)*");
}

TEST_F(Cache, ShortCommonBeginningsAreNotWaitedFor) {
  add(17, 8);
  add(17, 8);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,17)* 2[0,17)*") << "8 of 17 are less than half";
}

TEST_F(Cache, ALongBeginningIsSharedAsSoonAsItIsThere) {
  scheduler = Scheduler(limits(4, 10, 40));
  add(40, 20, 50);
  add(24, 20);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,10)");
  EXPECT_EQ(step(Outcome::goes_on), "1[10,20)");
  EXPECT_EQ(step(Outcome::goes_on), "1[20,30)");
  EXPECT_EQ(step(Outcome::goes_on), "1[30,40)*");
  EXPECT_EQ(step(Outcome::goes_on), "1[40,41)* 2[20,24)*");
}

TEST_F(Cache, NobodyWaitsForOneWhoIsGone) {
  scheduler = Scheduler(limits(4, 6, 40));
  add(20, 20);
  add(20, 20);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,6)");
  scheduler.cancel(1);
  EXPECT_EQ(step(Outcome::goes_on), "2[4,10)") << "one block was done";
}

TEST_F(Cache, TheUrgentDoNotWaitForThoseBehindThem) {
  scheduler = Scheduler(limits(4, 8, 40));
  const std::vector<BlockKey> keys = keys_of(20, 20, 0);
  ASSERT_TRUE(
      scheduler.add({.id = 1, .prompt_tokens = 20, .max_tokens = 24, .priority = 1, .keys = keys})
          .ok());
  EXPECT_EQ(step(Outcome::goes_on), "1[0,8)");
  ASSERT_TRUE(scheduler.add({.id = 2, .prompt_tokens = 20, .max_tokens = 24, .keys = keys}).ok());
  EXPECT_EQ(step(Outcome::goes_on), "2[8,16)");
}

TEST_F(Cache, NobodyWaitsForWhatWasOfferedAndIsGone) {
  scheduler = Scheduler(limits(4, 6, 10));
  const std::vector<BlockKey> keys = keys_of(9, 9, 0);
  const auto add_same = [&](int priority) {
    ASSERT_TRUE(scheduler
                    .add({.id = ++last,
                          .prompt_tokens = 9,
                          .max_tokens = 30,
                          .priority = priority,
                          .keys = keys})
                    .ok());
  };
  add_same(1);
  EXPECT_EQ(step(Outcome::goes_on), "1[0,6)");
  add_same(0);
  EXPECT_EQ(step(Outcome::goes_on), "2[4,9)* 1[6,7)");
  EXPECT_EQ(step(Outcome::goes_on), "2[9,10)* 1[7,9)*") << "its second block is now there twice";
  scheduler.cancel(2);
  ASSERT_EQ(scheduler.counts().blocks_cached, 1);
  add(24, 0);
  while (scheduler.counts().evictions == 0) step(Outcome::goes_on);  // the one of 2
  scheduler.cancel(3);
  add_same(2);
  EXPECT_NE(step(Outcome::goes_on).find("4[4,9)*"), std::string::npos);
}

TEST_F(Cache, OneWhoWaitsForBlocksComesInWhenItsPrefixAppears) {
  scheduler = Scheduler(limits(4, 12, 7));
  add(17, 16, 20);  // 5 blocks, computed in two steps
  add(17, 16, 20);  // 5 more do not fit; with 4 of them shared they do
  EXPECT_EQ(step(Outcome::goes_on), "1[0,12)");
  EXPECT_EQ(step(Outcome::goes_on), "1[12,17)*");
  EXPECT_EQ(step(Outcome::goes_on), "1[17,18)* 2[16,17)*");
}

}  // namespace
}  // namespace switchyard::schedule
