// SPDX-License-Identifier: Apache-2.0
// No wake-up is lost, whether the waiter spins or sleeps.
#include "base/wait_word.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

class WaitWordSpin : public testing::TestWithParam<int64_t> {};

TEST_P(WaitWordSpin, TwoThreadsPassTheBall) {
  const int64_t spin_ns = GetParam();
  constexpr uint32_t kRounds = 3000;
  WaitWord there, back;
  std::thread other([&] {
    for (uint32_t i = 1; i <= kRounds; ++i) {
      EXPECT_EQ(there.wait_while(i - 1, spin_ns, [&] { return i % 2 == 0; }), i);
      back.publish(i);
    }
  });
  for (uint32_t i = 1; i <= kRounds; ++i) {
    there.publish(i);
    EXPECT_EQ(back.wait_while(i - 1, spin_ns), i);
  }
  other.join();
}

TEST_P(WaitWordSpin, EverySleeperWakes) {
  const int64_t spin_ns = GetParam();
  WaitWord word;
  int payload = 0;  // published by the word: the thread sanitizer checks the order
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      word.wait_while(0, spin_ns);
      EXPECT_EQ(payload, 42);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  payload = 42;
  word.publish(1);
  for (std::thread& waiter : waiters) waiter.join();
}

INSTANTIATE_TEST_SUITE_P(Spins, WaitWordSpin, testing::Values(0, 2'000, 100'000));

}  // namespace
}  // namespace switchyard
