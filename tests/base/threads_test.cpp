// SPDX-License-Identifier: Apache-2.0
// The pool: every index once, parts that never move, barriers that hold, and workers that may come late.
#include "base/threads.h"

#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/topology.h"
#include "engine/allocation_count.h"

namespace switchyard {
namespace {

/// {threads, spin_us}: alone, one per core, more threads than cores; spinning and sleeping.
class PoolShape : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  Pool pool_{{.num_threads = std::get<0>(GetParam()), .spin_us = std::get<1>(GetParam())}};
};

TEST_P(PoolShape, ForEachRunsEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    pool_.for_each(count, [&](int64_t i, int thread) {
      EXPECT_TRUE(thread >= 0 && thread < pool_.num_threads());
      runs[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    });
    for (const auto& n : runs) EXPECT_EQ(n, 1);
  }
}

TEST_P(PoolShape, ForRangeHasTheSamePartsEachTime) {
  using Part = std::tuple<int64_t, int64_t, int>;
  for (const int64_t count : {1, 5, 64, 1001}) {
    for (const int64_t grain : {0, 1, 16, 5000}) {
      std::set<Part> first;
      for (int round = 0; round < 20; ++round) {
        std::vector<Part> parts(static_cast<size_t>(pool_.num_threads()), Part{-1, -1, -1});
        pool_.for_range(count, grain, [&](int64_t begin, int64_t end, int thread) {
          parts[static_cast<size_t>(thread)] = {begin, end, thread};  // a place of its own
        });
        std::set<Part> found(parts.begin(), parts.end());
        found.erase(Part{-1, -1, -1});
        if (round == 0) first = found;
        EXPECT_EQ(found, first);
        int64_t next = 0, shortest = count, longest = 0;
        for (const auto& [begin, end, thread] : found) {  // in order of begin
          EXPECT_EQ(begin, next);
          next = end;
          shortest = std::min(shortest, end - begin);
          longest = std::max(longest, end - begin);
        }
        EXPECT_EQ(next, count);
        EXPECT_LE(longest - shortest, 1);
        EXPECT_GE(shortest, std::min(count, grain));
      }
    }
  }
}

TEST_P(PoolShape, OnAllRunsOnceOnEveryThread) {
  std::vector<std::thread::id> ids(static_cast<size_t>(pool_.num_threads()));
  pool_.on_all([&](int thread) { ids[static_cast<size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), ids.size());
}

TEST_P(PoolShape, BarrierSeparatesPhases) {
  const int n = pool_.num_threads();
  constexpr int kPhases = 50;
  std::vector<int> marks(static_cast<size_t>(n));  // plain: the barrier orders the accesses
  pool_.on_all([&](int thread) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      marks[static_cast<size_t>(thread)] = phase;
      pool_.barrier();
      EXPECT_EQ(marks[static_cast<size_t>((thread + 1) % n)], phase);
      pool_.barrier();
    }
  });
}

TEST_P(PoolShape, ManySmallJobsOfEveryKind) {
  const auto n = static_cast<size_t>(pool_.num_threads());
  std::vector<int64_t> sums(n);  // plain: jobs are ordered after each other
  int64_t expected = 0;
  for (int job = 0; job < 1000; ++job) {
    switch (job % 3) {
      case 0:
        pool_.for_each(5, [&](int64_t i, int thread) { sums[static_cast<size_t>(thread)] += i; });
        expected += 10;
        break;
      case 1:
        pool_.for_range(10, 1, [&](int64_t begin, int64_t end, int thread) {
          sums[static_cast<size_t>(thread)] += end - begin;
        });
        expected += 10;
        break;
      default:
        pool_.on_all([&](int thread) { sums[static_cast<size_t>(thread)] += 1; });
        expected += static_cast<int64_t>(n);
    }
  }
  int64_t sum = 0;
  for (const int64_t s : sums) sum += s;
  EXPECT_EQ(sum, expected);
}

TEST_P(PoolShape, RunsDoNotAllocate) {
  const auto n = static_cast<size_t>(pool_.num_threads());
  std::vector<uint64_t> before(n), after(n);
  const auto count = [&](std::vector<uint64_t>& into) {
    pool_.on_all([&](int t) { into[static_cast<size_t>(t)] = allocations_of_this_thread(); });
  };
  std::atomic<int64_t> sum{0};
  count(before);
  for (int i = 0; i < 10; ++i) {
    pool_.for_each(20, [&](int64_t index, int) { sum += index; });
    pool_.for_range(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    pool_.on_all([&](int) { pool_.barrier(); });
  }
  count(after);
  EXPECT_EQ(before, after);
}

TEST_P(PoolShape, WorkersSleepAndWakeAgain) {
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> runs{0};
    pool_.on_all([&](int) { ++runs; });
    EXPECT_EQ(runs, pool_.num_threads());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PoolShape,
                         testing::Combine(testing::Values(1, 2, 3, 16), testing::Values(0, 50)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "Threads" +
                                  std::to_string(std::get<1>(test.param)) + "Spin";
                         });

TEST(Pool, ThousandsOfSmallJobsAddUp) {
  Pool pool({.num_threads = 2});
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 20'000; ++job) {
    pool.for_each(3, [&](int64_t i, int) { sum.fetch_add(i, std::memory_order_relaxed); });
  }
  EXPECT_EQ(sum, 60'000);
}

TEST(FunctionRef, CallsWhatItViews) {
  int calls = 0;
  const auto add = [&calls](int by) { return calls += by; };
  const FunctionRef<int(int)> ref(add);
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(ref(3), 5);
}

TEST(Pool, ANewCallerMayTakeOver) {
  Pool pool({.num_threads = 2});
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i) {
    std::thread([&] { pool.for_each(4, [&](int64_t, int) { ++runs; }); }).join();
  }
  EXPECT_EQ(runs, 20);
}

TEST(Pool, TheCallerStaysWhereItIs) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  Pool pool({.num_threads = 2});
  pool.on_all([](int) {});
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

int pinned_workers(Pool& pool) {
  std::atomic<int> pinned{0};
  pool.on_all([&](int thread) {
    cpu_set_t mask;
    if (thread > 0 && ::sched_getaffinity(0, sizeof(mask), &mask) == 0) {
      pinned += CPU_COUNT(&mask) == 1 ? 1 : 0;
    }
  });
  return pinned;
}

TEST(Pool, PinsUnlessToldNotTo) {
  const int cores = static_cast<int>(topology().cores.size());
  if (cores < 2) GTEST_SKIP() << "one core: there is nothing to choose";
  Pool pool({.num_threads = 2});
  EXPECT_EQ(pinned_workers(pool), 1);
  Pool free({.num_threads = 2, .pin = false});
  EXPECT_EQ(pinned_workers(free), 0);
  Pool crowded({.num_threads = cores + 1});
  EXPECT_EQ(pinned_workers(crowded), 0);
  ::setenv("SWITCHYARD_PIN", "0", 1);
  Pool by_environment({.num_threads = 2});
  ::unsetenv("SWITCHYARD_PIN");
  EXPECT_EQ(pinned_workers(by_environment), 0);
}

TEST(Pool, ReadsItsSizeFromTheEnvironment) {
  ::setenv("SWITCHYARD_THREADS", "3", 1);
  EXPECT_EQ(Pool().num_threads(), 3);
  EXPECT_EQ(Pool({.num_threads = 2}).num_threads(), 2);  // the program's word goes first
  std::string warning;
  set_log_sink([&](LogLevel, std::string_view text) { warning = text; });
  for (const char* bad : {"many", "0", "-2", "3x", "99999999999"}) {
    warning.clear();
    ::setenv("SWITCHYARD_THREADS", bad, 1);
    EXPECT_GE(Pool().num_threads(), 1);
    EXPECT_NE(warning.find(bad), std::string::npos) << bad;
  }
  set_log_sink({});
  ::unsetenv("SWITCHYARD_THREADS");
  EXPECT_LE(Pool().num_threads(), static_cast<int>(topology().cores.size()));
}

TEST(PoolDeathTest, MisuseIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Pool pool({.num_threads = 2});
        pool.on_all([&](int) { pool.for_each(4, [](int64_t, int) {}); });
      },
      "jobs do not nest");
  EXPECT_DEATH(
      {
        Pool pool({.num_threads = 1});
        Pool other({.num_threads = 1});
        pool.for_each(1, [&](int64_t, int) { other.on_all([](int) {}); });
      },
      "jobs do not nest");
  EXPECT_DEATH(Pool({.num_threads = 2}).barrier(), "a barrier outside on_all");
  EXPECT_DEATH(
      {
        Pool pool({.num_threads = 2});
        pool.for_range(10, 1, [&](int64_t, int64_t, int) { pool.barrier(); });
      },
      "a barrier outside on_all");
}

}  // namespace
}  // namespace switchyard
