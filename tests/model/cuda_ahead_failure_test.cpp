// SPDX-License-Identifier: Apache-2.0
// Launches that go wrong while steps run ahead: the step at hand gives what it should; who asks for the broken one gets the error, and
// after it all goes on as if nothing had been.
#include <gtest/gtest.h>

#include "cuda_counted.h"
#include "device/cuda.h"

namespace switchyard::test {
namespace {

constexpr int kSteps = 12;

// Steps that are expected to go on. One that fails is asked for again.
class Decoding {
 public:
  Decoding() : pool_(PoolOptions{.num_threads = 1, .pin = false}) {
    auto model = load_demo(DType::f32, pool_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (model.ok()) model_ = *std::move(model);
  }

  /// Why it failed; empty: it did not.
  std::string step(bool goes_on) {
    model::StepInput input = steps_.input(true);
    if (goes_on) input.goes_on_unless = &never_;
    cuda_calls.reset();
    const auto output = model_->forward(input);
    if (!output.ok()) return output.error().message;
    steps_.follow(output->pick);
    steps_.advance();
    tokens.insert(tokens.end(), steps_.token.begin(), steps_.token.end());
    return "";
  }
  void finish(bool goes_on) {
    while (steps_.context[0] < kSteps) ASSERT_EQ(step(goes_on), "");
  }
  model::AheadCounts counts() const { return model_->steps_ahead(); }

  std::vector<int32_t> tokens;

 private:
  Pool pool_;
  std::unique_ptr<model::Model> model_;
  DecodeSteps steps_;
  std::atomic<bool> never_{false};
};

void expect_counts(const Decoding& decoding, uint64_t used, uint64_t wasted, uint64_t failed) {
  EXPECT_EQ(decoding.counts().used, used);
  EXPECT_EQ(decoding.counts().wasted, wasted);
  EXPECT_EQ(decoding.counts().failed, failed);
}

class CudaAheadFailure : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
    Decoding in_turn;
    in_turn.finish(false);
    expected_ = in_turn.tokens;
    EXPECT_EQ(std::ssize(expected_), kSteps * DecodeSteps::kSequences);
  }
  void TearDown() override {
    cuda_calls.launch = Fault::none;
    cuda_calls.launches_before = 0;
    cuda_calls.refuses_graphs = false;
  }
  // Three steps; then each launches the next one alone.
  static void warm_up(Decoding& decoding) {
    ASSERT_EQ(decoding.step(false), "");
    ASSERT_EQ(decoding.step(false), "");
    ASSERT_EQ(decoding.step(true), "");
    ASSERT_EQ(cuda_calls.launches, 2);
  }
  static void fault(Fault what, int launches_before) {
    cuda_calls.launches_before = launches_before;
    cuda_calls.launch = what;
  }

  std::vector<int32_t> expected_;
};

TEST_F(CudaAheadFailure, AStepAheadThatCannotBeLaunchedIsLaunchedInTurn) {
  Decoding decoding;
  warm_up(decoding);
  fault(Fault::refused, 0);
  EXPECT_EQ(decoding.step(true), "") << "the step at hand was launched before";
  EXPECT_EQ(decoding.step(true), "");
  EXPECT_EQ(cuda_calls.launches, 1) << "in turn, and none ahead any more";
  decoding.finish(true);
  EXPECT_EQ(decoding.tokens, expected_);
  expect_counts(decoding, 1, 0, 1);
}

TEST_F(CudaAheadFailure, SoIsOneWhoseGraphCannotBeMade) {
  Decoding decoding;
  ASSERT_EQ(decoding.step(false), "");
  ASSERT_EQ(decoding.step(false), "");
  cuda_calls.refuses_graphs = true;
  EXPECT_EQ(decoding.step(true), "");
  EXPECT_EQ(cuda_calls.launches, 1);
  decoding.finish(true);
  EXPECT_EQ(decoding.tokens, expected_);
  expect_counts(decoding, 0, 0, 1);
}

// The launch was taken and nothing came of it: the step at hand is right, the next one says so, and asked for again it is right.
TEST_F(CudaAheadFailure, AStepAheadThatGivesNothingIsTheErrorOfTheNextStep) {
  Decoding decoding;
  warm_up(decoding);
  fault(Fault::lost, 0);
  EXPECT_EQ(decoding.step(true), "");
  const std::string why = decoding.step(false);
  EXPECT_NE(why.find("gave no result"), std::string::npos) << why;
  expect_counts(decoding, 2, 0, 0);
  EXPECT_EQ(decoding.step(true), "");
  decoding.finish(true);
  EXPECT_EQ(decoding.tokens, expected_);
  EXPECT_GT(decoding.counts().used, 4u) << "steps go ahead again";
}

// Where each step queues another one, the launch after the lost one does its work, and so on: it is the last one that is missing.
TEST_F(CudaAheadFailure, AlsoWhereOthersAreAheadOfIt) {
  Decoding decoding;
  warm_up(decoding);
  fault(Fault::lost, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(decoding.step(true), "");
  EXPECT_NE(decoding.step(false), "");
  EXPECT_EQ(decoding.counts().wasted, 0u);
  decoding.finish(true);
  EXPECT_EQ(decoding.tokens, expected_);
}

TEST_F(CudaAheadFailure, AStepAtHandThatCannotBeLaunchedFailsAlone) {
  Decoding decoding;
  ASSERT_EQ(decoding.step(false), "");
  ASSERT_EQ(decoding.step(false), "");
  fault(Fault::refused, 0);
  const std::string why = decoding.step(true);
  EXPECT_NE(why.find("replay a graph"), std::string::npos) << why;
  EXPECT_EQ(cuda_calls.launches, 1) << "nothing goes ahead of a step that failed";
  decoding.finish(true);
  EXPECT_EQ(decoding.tokens, expected_);
  EXPECT_EQ(decoding.counts().failed, 0u);
}

}  // namespace
}  // namespace switchyard::test
