// SPDX-License-Identifier: Apache-2.0
// A loop that throws: its requests end with an error, nobody waits for ever, and the reason is known.
#include "engine/loop_thread.h"

#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "engine/loop_world.h"

namespace switchyard::engine {
namespace {

TEST(LoopThread, AThrowInAStepEndsEveryRequestAndTheReasonIsKept) {
  World world;
  world.model.script = [](int length, int32_t) -> std::optional<int32_t> {
    if (length > 6) throw std::bad_alloc();
    return 300;
  };
  Received running, waiting;
  ASSERT_TRUE(world.try_submit({5, 6, 7}, greedy(50), running.sink()).ok());
  ASSERT_TRUE(world.try_submit({5, 6, 8}, greedy(50), waiting.sink()).ok());
  const LoopThread thread(world.loop);
  world.loop.wait_idle();
  for (const Received* received : {&running, &waiting}) {
    ASSERT_EQ(received->finish(), FinishReason::error);
    EXPECT_NE(received->last().error->message.find("bad_alloc"), std::string::npos);
  }
  EXPECT_NE(thread.death().find("bad_alloc"), std::string::npos);
  EXPECT_EQ(world.loop.requests(), 0);
  const auto late = world.try_submit({1}, greedy(1), waiting.sink());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::unavailable);
}

TEST(LoopThread, ASinkThatThrowsDoesNotEndTheProcess) {
  World world;
  Received other;
  ASSERT_TRUE(world
                  .try_submit({5, 6, 7}, greedy(5),
                              [](const Event&) { throw std::runtime_error("of the sink"); })
                  .ok());
  const LoopThread thread(world.loop);
  while (thread.death().empty()) std::this_thread::yield();
  EXPECT_NE(thread.death().find("of the sink"), std::string::npos);
}

TEST(LoopThread, StepsRiseAndALivingLoopHasNoDeath) {
  World world;
  Received received;
  const LoopThread thread(world.loop);
  ASSERT_TRUE(world.try_submit({5, 6, 7}, greedy(5), received.sink()).ok());
  world.loop.wait_idle();
  EXPECT_EQ(world.loop.requests(), 0);
  EXPECT_GE(world.loop.steps(), 4u);
  EXPECT_EQ(thread.death(), "");
}

TEST(LoopThread, AStepThatHangsIsSeenByItsCount) {
  World world;
  std::promise<void> hangs, goes_on;
  world.model.script = [&](int length, int32_t) -> std::optional<int32_t> {
    if (length == 4) {
      hangs.set_value();
      goes_on.get_future().wait();
    }
    return 300;
  };
  Received received;
  const LoopThread thread(world.loop);
  ASSERT_TRUE(world.try_submit({5, 6, 7}, greedy(4), received.sink()).ok());
  hangs.get_future().wait();
  const uint64_t steps = world.loop.steps();
  EXPECT_EQ(world.loop.requests(), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(world.loop.steps(), steps);
  goes_on.set_value();
  world.loop.wait_idle();
  EXPECT_GT(world.loop.steps(), steps);
}

}  // namespace
}  // namespace switchyard::engine
