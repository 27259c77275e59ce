// SPDX-License-Identifier: Apache-2.0
// The door: tickets are places in the queue, and come back whatever becomes of them.
#include "engine/door.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

TEST(Door, ATicketIsAPlaceUntilItIsGone) {
  Door door({.max_requests = 2, .max_tokens = 100});
  auto first = door.enter();
  ASSERT_TRUE(first.ok());
  {
    auto second = door.enter();
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE(second->add_tokens(90).ok());
    EXPECT_EQ(door.enter().error().code, Code::overloaded);
    EXPECT_EQ(first->add_tokens(20).error().code, Code::overloaded);
    Ticket moved = *std::move(second);
    EXPECT_FALSE(door.enter().ok()) << "a moved ticket is still one place";
  }
  EXPECT_TRUE(first->add_tokens(20).ok());
  auto third = door.enter();
  ASSERT_TRUE(third.ok());
  *third = *std::move(first);  // the third place comes back
  EXPECT_TRUE(door.enter().ok());
  third->give_back();
  third->give_back();
  EXPECT_TRUE(door.enter().ok());
}

TEST(Door, ClosedForGood) {
  Door door({});
  auto inside = door.enter();
  door.close();
  EXPECT_EQ(door.enter().error().code, Code::unavailable);
  EXPECT_TRUE(inside->add_tokens(5).ok()) << "who is in goes on";
}

TEST(Door, NeverMorePlacesThanAllowedUnderManyThreads) {
  Door door({.max_requests = 3});
  std::atomic<int> inside{0}, most{0}, entered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        auto ticket = door.enter();
        if (!ticket.ok()) continue;
        ++entered;
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(entered, 1000);
  std::vector<Ticket> all;
  for (int i = 0; i < 3; ++i) all.push_back(*door.enter());
  EXPECT_FALSE(door.enter().ok());
}

}  // namespace
}  // namespace switchyard::engine
