// SPDX-License-Identifier: Apache-2.0
// Waits that are longer than a clock of nanoseconds can name still wait.
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include "engine/loop_world.h"

namespace switchyard::engine {
namespace {

constexpr double kFar_s = 1e12;
constexpr std::chrono::milliseconds kWhile{100};

/// A loop on a thread of its own.
struct Runner {
  explicit Runner(World& world) : world_(world), thread_([&world] { world.loop.run(); }) {}
  ~Runner() {
    world_.loop.stop();
    thread_.join();
  }
  /// Seconds of processor that the loop takes in a while, of which it is given some time to settle.
  double busy_s() {
    std::this_thread::sleep_for(kWhile);
    const double before_s = cpu_s();
    std::this_thread::sleep_for(kWhile * 3);
    return cpu_s() - before_s;
  }

 private:
  double cpu_s() {
    clockid_t clock{};
    timespec time{};
    EXPECT_EQ(pthread_getcpuclockid(thread_.native_handle(), &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  World& world_;
  std::thread thread_;
};

Request request_of(int max_tokens) {
  Request request;
  request.prompt_tokens = prompt_of(1, 4);
  request.sampling = greedy(max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

TEST(Intake, WaitsUntilSomethingIsNewHoweverLongItMay) {
  Intake intake;
  std::atomic<bool> returned{false};
  std::thread waiting([&] {
    intake.wait(kFar_s);
    returned = true;
  });
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(returned);
  intake.cancel(1);
  waiting.join();
}

TEST(Intake, WaitsUntilIdleHoweverLongItMay) {
  World world;  // nobody turns
  Received received;
  world.submit(request_of(3), received);
  std::atomic<bool> returned{false};
  std::thread waiting([&] {
    EXPECT_TRUE(world.loop.wait_idle_for(kFar_s));
    returned = true;
  });
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(returned);
  world.loop.stop();
  world.loop.turn();
  waiting.join();
}

/// The deadline of a request that has ended is still the next one.
TEST(Intake, AFarDeadlineDoesNotMakeTheIdleLoopSpin) {
  World world;
  Received received;
  Request request = request_of(3);
  request.timeout_s = kFar_s;
  Runner runner(world);
  world.submit(request, received);
  EXPECT_TRUE(world.loop.wait_idle_for(60));
  EXPECT_LT(runner.busy_s(), 0.02);
  EXPECT_EQ(received.finish(), FinishReason::length);
}

TEST(Intake, ALongWaitForCompanyDoesNotMakeTheLoopSpin) {
  WorldShape shape;
  shape.min_decode_batch = 2;
  shape.decode_wait_s = kFar_s;
  World world(shape);
  Received received;
  {
    Runner runner(world);
    world.submit(request_of(3), received);
    EXPECT_LT(runner.busy_s(), 0.02);
  }
  EXPECT_EQ(received.tokens.size(), 1u) << "the prompt's step; the next one waits";
  EXPECT_EQ(received.finish(), FinishReason::cancelled);
}

}  // namespace
}  // namespace switchyard::engine
