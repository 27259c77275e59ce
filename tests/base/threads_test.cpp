// SPDX-License-Identifier: Apache-2.0
// The pool: every index once, static partitions, phases with barriers, many small jobs.
#include "base/threads.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

class PoolTest : public testing::TestWithParam<int> {
 protected:
  Pool pool_{PoolOptions{.num_threads = GetParam(), .pin = false}};
};

TEST_P(PoolTest, ForEachVisitsEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> seen(count);
    pool_.for_each(count, [&](int64_t i, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, pool_.num_threads());
      seen[i].fetch_add(1);
    });
    for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
  }
}

TEST_P(PoolTest, ForRangeCoversWithPartsOfAtLeastTheGrain) {
  for (const int64_t count : {0, 1, 5, 64, 1001}) {
    for (const int64_t grain : {1, 10, 5000}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<int> parts{0};
      pool_.for_range(count, grain, [&](int64_t begin, int64_t end, int) {
        parts.fetch_add(1);
        for (int64_t i = begin; i < end; ++i) seen[i].fetch_add(1);
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
      EXPECT_LE(parts.load(), pool_.num_threads());
      if (count <= grain) {
        EXPECT_LE(parts.load(), 1);
      }
    }
  }
}

TEST_P(PoolTest, ForRangeGivesTheSamePartsEveryTime) {
  const auto parts = [&] {
    std::vector<int64_t> begin_of(pool_.num_threads(), -1);
    pool_.for_range(1003, 1, [&](int64_t begin, int64_t, int thread) { begin_of[thread] = begin; });
    return begin_of;
  };
  const auto first = parts();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(parts(), first);
}

TEST_P(PoolTest, BarrierSeparatesPhases) {
  std::vector<int> written(pool_.num_threads(), 0);
  std::atomic<int> errors{0};
  for (int round = 1; round <= 200; ++round) {
    pool_.on_all([&](int thread) {
      written[thread] = round;
      pool_.barrier();
      for (const int w : written) errors += w != round ? 1 : 0;
      pool_.barrier();
    });
  }
  EXPECT_EQ(errors.load(), 0);
}

TEST_P(PoolTest, ManySmallJobsAddUp) {
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 20000; ++job) {
    pool_.for_each(3, [&](int64_t i, int) { sum.fetch_add(i, std::memory_order_relaxed); });
  }
  EXPECT_EQ(sum.load(), 20000 * 3);
}

TEST_P(PoolTest, WakesAfterSleeping) {
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than the spin
    std::atomic<int> ran{0};
    pool_.on_all([&](int) { ran.fetch_add(1); });
    EXPECT_EQ(ran.load(), pool_.num_threads());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PoolTest, testing::Values(1, 2, 3, 8));

TEST(Pool, NestedRunsAreABrokenInvariant) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Pool pool({.num_threads = 2, .pin = false});
        pool.on_all([&](int) { pool.for_each(2, [](int64_t, int) {}); });
      },
      "broken invariant");
}

TEST(FunctionRef, CallsWhatItViews) {
  int calls = 0;
  const auto f = [&calls](int by) { return calls += by; };
  const FunctionRef<int(int)> ref(f);
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(ref(3), 5);
}

}  // namespace
}  // namespace switchyard
