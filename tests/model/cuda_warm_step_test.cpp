// SPDX-License-Identifier: Apache-2.0
// What a warm decode step asks of the runtime and of the host's heap.
#include <gtest/gtest.h>

#include "cuda_counted.h"
#include "device/cuda.h"
#include "model/steps_ahead.h"

namespace switchyard::test {
namespace {

constexpr int kPause = model::StepsAhead::kPauseAfterWaste;
static_assert(kPause % DecodeSteps::kBlock == 0, "the script counts in whole blocks");

class Watcher final : public model::RoutingObserver {
 public:
  explicit Watcher(bool wants_picks) : wants_picks_(wants_picks) {}
  void on_routing(int, const Routing&) override { ++layers; }
  bool wants_picks() const override { return wants_picks_; }
  int layers = 0;

 private:
  bool wants_picks_;
};

Result<model::StepOutput> forward(model::Model& model, const model::StepInput& input,
                                  Watcher& watcher) {
  const CountHost counting;
  return model.forward(input, &watcher);
}

TEST(CudaWarmStep, AllocatesNothingAndWaitsOnlyForCopies) {
  if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int kind : {0, 1, 2, 3}) {
      const bool picks = kind / 2 == 0, shows_experts = kind % 2 == 0;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", picks " << picks
                                      << ", the experts' too " << shows_experts);
      Pool pool(PoolOptions{.num_threads = 1, .pin = false});
      auto model = load_demo(dtype, pool);
      ASSERT_TRUE(model.ok()) << model.error().message;
      DecodeSteps steps;
      Watcher watcher(shows_experts);
      const auto step = [&] {
        const model::StepInput input = steps.input(picks);
        const auto output = forward(**model, input, watcher);
        ASSERT_TRUE(output.ok()) << output.error().message;
        EXPECT_EQ(output->pick.empty(), !picks);
        EXPECT_EQ(output->logits.empty(), picks);
        steps.advance();
      };
      for (int i = 0; i < 3; ++i) step();  // captures the graph
      EXPECT_GT(cuda_calls.allocations, 0) << "the calls are not counted";
      cuda_calls.reset();
      constexpr int kSteps = 10;
      for (int i = 0; i < kSteps; ++i) step();
      EXPECT_EQ(cuda_calls.allocations, 0);
      EXPECT_EQ(cuda_calls.host_allocations, 0);
      const bool copied = !picks || shows_experts;
      EXPECT_EQ(cuda_calls.waits, copied ? kSteps : 0) << "else a word in memory is waited for";
      EXPECT_EQ(cuda_calls.launches, kSteps);
      EXPECT_EQ(cuda_calls.copies, (picks ? 0 : kSteps) + (shows_experts ? kSteps : 0))
          << "only out";
      EXPECT_GT(watcher.layers, 0);
    }
  }
}

// How many launches the steps of a script make, each compared with what is expected.
void expect_one_launch_a_step(model::Model& model) {
  DecodeSteps steps;
  Watcher watcher(false);
  std::atomic<bool> news{false};
  const auto launched_by = [&](bool goes_on, bool follows) {
    model::StepInput input = steps.input(true);
    if (goes_on) input.goes_on_unless = &news;
    cuda_calls.reset();
    const auto output = forward(model, input, watcher);
    EXPECT_TRUE(output.ok()) << output.error().message;
    if (output.ok() && follows) steps.follow(output->pick);
    steps.advance();
    return cuda_calls.launches.load();
  };
  launched_by(false, true);  // captures
  EXPECT_EQ(launched_by(false, true), 1);
  EXPECT_EQ(launched_by(true, true), 2) << "its own, and the next one";
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(launched_by(true, true), 1) << "the next one";
    EXPECT_EQ(cuda_calls.allocations + cuda_calls.host_allocations, 0);
    EXPECT_EQ(cuda_calls.waits + cuda_calls.copies, 0);
  }
  EXPECT_EQ(launched_by(false, true), 0) << "was there already";
  EXPECT_EQ(launched_by(true, false), 2);
  ++steps.token[0];  // not what was picked
  for (int i = 0; i < kPause; ++i) {
    EXPECT_EQ(launched_by(true, true), 1) << "what was foreseen was for nothing: " << i;
  }
  EXPECT_EQ(launched_by(true, true), 2) << "a pause has passed";
  news = true;
  EXPECT_EQ(launched_by(true, true), 0) << "something has come up";
  news = false;
  EXPECT_EQ(launched_by(true, true), 2);
  EXPECT_EQ(steps.context[0], 15 + kPause);
  EXPECT_EQ(launched_by(true, true), 0) << "was there; the next one needs another block";
  EXPECT_EQ(launched_by(true, true), 2);
  EXPECT_EQ(model.steps_ahead().used, 10u);
  EXPECT_EQ(model.steps_ahead().wasted, 1u);
  EXPECT_EQ(model.steps_ahead().failed, 0u);
}

// A step that was foreseen is there when it is asked for: nothing is launched for it then. One that was not is launched. That does
// not depend on who is faster: a host whose launches take 3 ms each finds every step ended.
TEST(CudaWarmStep, AStepAheadIsLaunchedOnce) {
  if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int launch_us : {0, 3000}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", launches of us: " << launch_us);
      Pool pool(PoolOptions{.num_threads = 1, .pin = false});
      auto model = load_demo(dtype, pool);
      ASSERT_TRUE(model.ok()) << model.error().message;
      cuda_calls.launch_us = launch_us;
      expect_one_launch_a_step(**model);
      cuda_calls.launch_us = 0;
    }
  }
}

}  // namespace
}  // namespace switchyard::test
