// SPDX-License-Identifier: Apache-2.0
// The loop on a device that begins steps before they are asked for. Requests come while others run, and end by stop tokens, by length,
// by a cancel: their streams are those of a device that does nothing ahead, and what it did for nothing is counted.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fake_model.h"
#include "engine/loop_world.h"
#include "model/steps_ahead.h"

namespace switchyard::engine {
namespace {

// A greedy device. Where it may, it begins the next step at once: keys and values of the picked tokens are written one position
// behind the sequences, whether that step comes or not.
class AheadModel final : public ModelPort {
 public:
  AheadModel(FakeModel& model, int block_tokens, bool goes_ahead)
      : model_(model), block_tokens_(block_tokens), goes_ahead_(goes_ahead) {
    ahead_.learn(1, 1);
    ahead_.learn(2, 1);
  }

  bool can_pick() const noexcept override { return true; }
  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver* observer) override {
    const bool known = ahead_.queued() && arrays_of(input) == foreseen_;
    ahead_.take(known, input.decode_only);
    SWITCHYARD_ASSIGN(const model::StepOutput output, model_.forward(input, observer));
    pick_ = best(output.logits);
    if (known) {
      EXPECT_EQ(pick_, foreseen_pick_) << "the step begun ahead";
    }
    ++steps_;
    const bool may = goes_ahead_ && input.goes_on_unless != nullptr && has_room(input);
    const bool unless = input.goes_on_unless != nullptr && *input.goes_on_unless;
    if (ahead_.decide_by(0, static_cast<int>(pick_.size())) && may && !unless) begin(input);
    model::StepOutput picked;
    picked.pick = all(pick_);
    return picked;
  }
  model::AheadCounts steps_ahead() const noexcept override { return ahead_.counts(); }
  model::GuessCounts guesses() const noexcept override { return {7 * steps_, 2 * steps_}; }
  void between_steps() override {}

 private:
  using Arrays = std::vector<std::vector<int32_t>>;

  uint64_t steps_ = 0;

  static std::vector<int32_t> copy(const TensorView& view) {
    return {view.as<int32_t>(), view.as<int32_t>() + view.shape.elements()};
  }
  static Arrays arrays_of(const model::StepInput& input) {
    return {copy(input.token),       copy(input.position),    copy(input.seq_offset),
            copy(input.context_len), copy(input.block_table), copy(input.logit_row)};
  }
  static TensorView all(std::vector<int32_t>& values) {
    return TensorView::of(values.data(), {std::ssize(values)});
  }
  bool has_room(const model::StepInput& input) const {
    for (const int32_t context : copy(input.context_len))
      if ((context + 1) % block_tokens_ == 0) return false;
    return true;
  }
  static std::vector<int32_t> best(const TensorView& logits) {
    std::vector<int32_t> picks;
    for (int64_t row = 0; row < logits.shape[0]; ++row) {
      const float* first = logits.as<float>() + row * FakeModel::kVocab;
      picks.push_back(
          static_cast<int32_t>(std::max_element(first, first + FakeModel::kVocab) - first));
    }
    return picks;
  }
  void begin(const model::StepInput& input) {
    foreseen_ = arrays_of(input);
    foreseen_[0] = pick_;
    for (const size_t i : {1u, 3u})
      for (int32_t& position : foreseen_[i]) ++position;
    model::StepInput next = input;
    next.token = all(foreseen_[0]);
    next.position = all(foreseen_[1]);
    next.context_len = all(foreseen_[3]);
    const auto output = model_.forward(next, nullptr);
    ASSERT_TRUE(output.ok());
    foreseen_pick_ = best(output->logits);
    ahead_.went();
  }

  FakeModel& model_;
  int block_tokens_;
  bool goes_ahead_;
  model::StepsAhead ahead_;
  Arrays foreseen_;
  std::vector<int32_t> pick_, foreseen_pick_;
};

constexpr int kRequests = 60, kSequences = 2;

struct Outcome {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<FinishReason> finish;
  std::vector<std::string> series;  // what must not depend on going ahead
  model::AheadCounts ahead;
  model::GuessCounts guesses;
  std::string metrics;
};

SamplingParams params_of(int i) {
  SamplingParams params = greedy(40 + i % 30);
  params.ignore_eos = i % 5 == 0;
  // A fifth of the tokens that FakeModel gives are one of these.
  if (i % 3 != 0)
    for (int token = 260; token < 460; token += 7 + i % 2) params.stop_token_ids.push_back(token);
  return params;
}

std::string line_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

Outcome run(bool goes_ahead) {
  const WorldShape shape{.max_sequences = kSequences, .num_blocks = 64};
  World base(shape);  // its model, tokenizer and pool
  AheadModel model(base.model, shape.block_tokens, goes_ahead);
  MetricRegistry metrics;
  EngineLoop loop(model, *base.tokenizer, World::options(shape), base.pool, base.tracer, metrics);
  std::vector<Received> received(kRequests);
  std::vector<RequestId> ids;
  const auto submit = [&] {
    const auto i = static_cast<int>(ids.size());
    Request request;
    request.prompt_tokens = prompt_of(i % 7, 3 + i % 11);  // some share what they begin with
    request.sampling = params_of(i);
    const auto id = loop.submit(std::move(request), received[ids.size()].sink(), *loop.reserve());
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  };
  // By the number of ended requests, so that both runs see the same load: one, then two at once, at times somebody waits.
  for (int turn = 0; turn < 100'000; ++turn) {
    const auto most = static_cast<int>(ids.size() / 4 % 3) + 1;
    int ended = 0;
    for (const Received& one : received) ended += one.finish() != FinishReason::none;
    if (ids.size() < kRequests && static_cast<int>(ids.size()) - ended < most) submit();
    if (ids.size() == 31 && received[30].tokens.size() == 3) loop.cancel(ids[30]);
    if (!loop.turn() && ids.size() == kRequests) break;
  }
  Outcome outcome;
  for (const Received& one : received) {
    outcome.tokens.push_back(one.tokens);
    outcome.finish.push_back(one.finish());
  }
  outcome.ahead = model.steps_ahead();
  outcome.guesses = model.guesses();
  outcome.metrics = metrics.prometheus_text();
  for (const char* name : {"switchyard_generation_tokens_total",
                           "switchyard_requests_finished_total{finish_reason=\"stop\"}",
                           "switchyard_routed_assignments_total{layer=\"1\",stage=\"decode\"}",
                           "switchyard_step_duration_seconds_count{stage=\"decode\"}",
                           "switchyard_step_tokens_sum{stage=\"decode\"}",
                           "switchyard_step_load_imbalance_ratio_sum{stage=\"decode\"}",
                           "switchyard_inter_token_latency_seconds_count"}) {
    outcome.series.push_back(line_of(outcome.metrics, name));
    EXPECT_FALSE(outcome.series.back().empty()) << name;
  }
  return outcome;
}

TEST(Ahead, StreamsAndCountsAreThoseOfADeviceThatDoesNothingAhead) {
  const Outcome in_turn = run(false), ahead = run(true);
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(ahead.tokens[i], in_turn.tokens[i]) << "request " << i;
    EXPECT_EQ(ahead.finish[i], in_turn.finish[i]) << "request " << i;
  }
  EXPECT_EQ(ahead.series, in_turn.series);
  std::map<FinishReason, int> ends;
  for (const FinishReason reason : ahead.finish) ++ends[reason];
  EXPECT_GT(ends[FinishReason::stop], 20);
  EXPECT_GT(ends[FinishReason::length], 5);
  EXPECT_EQ(ends[FinishReason::cancelled], 1);
  EXPECT_EQ(in_turn.ahead.used + in_turn.ahead.wasted, 0u);
}

TEST(Ahead, WhatWasForNothingIsCounted) {
  const Outcome ahead = run(true);
  EXPECT_GT(ahead.ahead.used, 50u);
  EXPECT_GT(ahead.ahead.wasted, 5u) << "no sequence has ended while a step was ahead";
  for (const auto& [outcome, count] :
       {std::pair{"used", ahead.ahead.used}, {"wasted", ahead.ahead.wasted}, {"failed", 0}}) {
    const auto name = std::string("switchyard_steps_ahead_total{outcome=\"") + outcome + "\"}";
    EXPECT_EQ(line_of(ahead.metrics, name), name + " " + std::to_string(count));
  }
}

TEST(Ahead, GuessesRightAndWrongAreCounted) {
  const Outcome seen = run(true);
  EXPECT_GT(seen.guesses.wrong, 0u);
  for (const auto& [guess, count] :
       {std::pair{"right", seen.guesses.right}, {"wrong", seen.guesses.wrong}}) {
    const auto name = std::string("switchyard_guessed_picks_total{guess=\"") + guess + "\"}";
    EXPECT_EQ(line_of(seen.metrics, name), name + " " + std::to_string(count));
  }
}

}  // namespace
}  // namespace switchyard::engine
