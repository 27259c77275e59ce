// SPDX-License-Identifier: Apache-2.0
// The loop on a model that chooses tokens itself: the same tokens as when the loop samples, whether the model decides a row, leaves
// it undecided, or gives logits after all.
#include "engine/device_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fake_model.h"
#include "engine/loop.h"

namespace switchyard::engine {
namespace {

// A model that picks in front of one that does not: greedy rows as it is told, except every third; the rest is undecided. Every
// fifth step gives logits.
class PickingModel final : public ModelPort {
 public:
  PickingModel(FakeModel& model, bool picks) : model_(model), picks_(picks) {}

  bool can_pick() const noexcept override { return picks_; }
  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver* observer) override {
    EXPECT_EQ(input.sample.empty(), !picks_ || input.logit_row.shape[0] == 0);
    went_on.push_back(input.goes_on_unless != nullptr);
    SWITCHYARD_ASSIGN(const model::StepOutput output, model_.forward(input, observer));
    logits_ = output.logits;
    if (!picks_ || ++steps_ % 5 == 0 || input.sample.empty()) return output;
    pick_.clear();
    for (size_t i = 0; i < input.sample.size(); ++i)
      pick_.push_back(
          pick(input.sample[i], logits_.as<float>() + static_cast<int64_t>(i) * FakeModel::kVocab));
    model::StepOutput picked;
    picked.pick = TensorView::of(pick_.data(), {std::ssize(pick_)});
    return picked;
  }
  Result<TensorView> read_logits() override {
    ++times_read;
    return logits_;
  }
  void between_steps() override {}

  int times_read = 0, decided = 0;
  std::vector<bool> went_on;  ///< step by step

 private:
  int32_t pick(const model::SampleSpec& spec, float* logits) {
    if (!std::all_of(logits, logits + FakeModel::kVocab, [](float v) { return std::isfinite(v); }))
      return model::kPickNonFinite;
    for (const model::SeenToken& seen : spec.seen) {
      float& logit = logits[seen.token];
      if (spec.repetition != 1)
        logit = logit > 0 ? logit / spec.repetition : logit * spec.repetition;
      if (seen.in_output > 0)
        logit = logit - spec.presence - spec.frequency * static_cast<float>(seen.in_output);
    }
    for (const int32_t token : spec.masked) logits[token] = -std::numeric_limits<float>::infinity();
    if (spec.temperature != 0 || rows_++ % 3 == 0) return model::kPickUndecided;
    ++decided;
    return static_cast<int32_t>(std::max_element(logits, logits + FakeModel::kVocab) - logits);
  }

  FakeModel& model_;
  bool picks_;
  TensorView logits_;
  std::vector<int32_t> pick_;
  int steps_ = 0, rows_ = 0;
};

SamplingParams params_of(int i) {
  SamplingParams params;
  params.temperature = i % 3 != 1 ? 2.0f : 0.0f;
  params.seed = static_cast<uint64_t>(i);
  params.max_tokens = 12 + 3 * i;
  if (i % 2 == 1) params.repetition_penalty = 4;
  if (i % 4 == 2) params.presence_penalty = 0.5f;
  if (i % 4 == 3) params.frequency_penalty = 0.25f;
  if (i < 5) params.min_tokens = 9;
  // Of these the host needs the logits as they are, in front of what the device would do to them.
  if (i == 3 || i == 4) params.logprobs = i;
  if (i == 1 || i == 4) params.logit_bias = {{300, 40.0f}, {301, -3.0f}};
  return params;
}

struct Outcome {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<TokenLogprobs>> logprobs;
  std::vector<FinishReason> finish;
  int times_read = 0, decided = 0;
};

constexpr int kBlocks = 64, kBlock = 4;

LoopOptions loop_options(int sequences) {
  LoopOptions options;
  options.limits.max_sequences = sequences;
  options.limits.max_step_tokens = 16;
  options.limits.block_tokens = kBlock;
  options.limits.num_blocks = kBlocks;
  options.max_model_len = 100;
  options.vocab = FakeModel::kVocab;
  options.experts.assign(FakeModel::kMoeLayers, FakeModel::kExperts);
  options.eos_ids = {0, 2};
  return options;
}

Outcome run(bool picks) {
  constexpr int kRequests = 8, kSequences = 4;
  FakeModel fake(kBlocks, kBlock, 16, kSequences);
  fake.poisoned_first_token = 105;  // of the last request
  fake.poisoned_from = 5;
  fake.script = [](int length, int32_t) {  // an end of sequence comes early once
    return length == 6 ? std::optional<int32_t>(2) : std::nullopt;
  };
  PickingModel model(fake, picks);
  const auto tokenizer = *text::open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo");
  Pool pool(PoolOptions{.num_threads = 1, .pin = false});
  Tracer tracer;
  MetricRegistry metrics;
  const LoopOptions options = loop_options(kSequences);
  EngineLoop loop(model, *tokenizer, options, pool, tracer, metrics);
  Outcome outcome;
  outcome.tokens.resize(kRequests);
  outcome.logprobs.resize(kRequests);
  outcome.finish.resize(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    std::vector<int32_t> prompt{i == kRequests - 1 ? 105 : 110 + i};
    for (int t = 0; t < 2 * i % 7; ++t) prompt.push_back(120 + (i * 5 + t * 3) % 9);
    Request request;
    request.prompt_tokens = std::move(prompt);
    request.sampling = params_of(i);
    const auto sink = [&outcome, i](const Event& event) {
      auto& tokens = outcome.tokens[static_cast<size_t>(i)];
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      auto& logprobs = outcome.logprobs[static_cast<size_t>(i)];
      logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
      outcome.finish[static_cast<size_t>(i)] = event.finish;
    };
    EXPECT_TRUE(loop.submit(std::move(request), sink, *loop.reserve()).ok());
  }
  while (loop.turn()) {
  }
  outcome.times_read = model.times_read;
  outcome.decided = model.decided;
  return outcome;
}

std::vector<float> values_of(const TokenLogprobs& token) {
  std::vector<float> values{static_cast<float>(token.chosen.token), token.chosen.logprob};
  for (const TokenLogprobs::One& one : token.top) {
    values.push_back(static_cast<float>(one.token));
    values.push_back(one.logprob);
  }
  return values;
}

TEST(DeviceSampling, TheTokensAreTheLoopsOwn) {
  const Outcome host = run(false), device = run(true);
  EXPECT_EQ(host.times_read, 0);
  EXPECT_GT(device.times_read, 5);
  EXPECT_GT(device.decided, 5);
  for (size_t i = 0; i < host.tokens.size(); ++i) {
    EXPECT_EQ(device.tokens[i], host.tokens[i]) << "request " << i;
    EXPECT_EQ(device.finish[i], host.finish[i]) << "request " << i;
    ASSERT_EQ(device.logprobs[i].size(), host.logprobs[i].size()) << "request " << i;
    for (size_t t = 0; t < host.logprobs[i].size(); ++t)
      EXPECT_EQ(values_of(device.logprobs[i][t]), values_of(host.logprobs[i][t]))
          << "request " << i;
  }
  EXPECT_FALSE(host.logprobs[3].empty());
  EXPECT_EQ(host.finish.back(), FinishReason::error) << "its logits were poisoned";
  EXPECT_GE(host.tokens[4].size(), 9u) << "its end was not masked";
}

// Which steps the loop expects to go on, of requests of so many tokens each, `sequences` at a time.
std::vector<bool> foreseen(const std::vector<SamplingParams>& requests, int sequences) {
  FakeModel fake(kBlocks, kBlock, 16, sequences);
  PickingModel model(fake, true);
  const auto tokenizer = *text::open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo");
  Pool pool(PoolOptions{.num_threads = 1, .pin = false});
  Tracer tracer;
  MetricRegistry metrics;
  const LoopOptions options = loop_options(sequences);
  EngineLoop loop(model, *tokenizer, options, pool, tracer, metrics);
  for (const SamplingParams& params : requests) {
    Request request;
    request.prompt_tokens = {110, 111, 112};
    request.sampling = params;
    EXPECT_TRUE(loop.submit(
                        std::move(request), [](const Event&) {}, *loop.reserve())
                    .ok());
  }
  while (loop.turn()) {
  }
  return model.went_on;
}

TEST(DeviceSampling, AStepGoesOnUntilTheLastTokenUnlessSomebodyWaits) {
  SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = 4;
  using Steps = std::vector<bool>;
  EXPECT_EQ(foreseen({params}, 1), (Steps{false, true, true, false})) << "a prompt, three tokens";
  EXPECT_EQ(foreseen({params, params}, 2), (Steps{false, true, true, false}));
  EXPECT_EQ(foreseen({params, params}, 1),
            (Steps{false, false, false, false, false, true, true, false}))
      << "one waits while the other runs";
  SamplingParams longer = params;
  longer.max_tokens = 5;
  EXPECT_EQ(foreseen({params, longer}, 2), (Steps{false, true, true, false, false}))
      << "the first ends, then the second";
  longer.max_tokens = 6;
  EXPECT_EQ(foreseen({params, params, longer}, 3), (Steps{false, false, false, false, true, false}))
      << "an end of one of three would cost the others a step; then one is left";
  params.logprobs = 2;
  EXPECT_EQ(foreseen({params}, 1), Steps(4, false)) << "the host needs every step's logits";
}

}  // namespace
}  // namespace switchyard::engine
