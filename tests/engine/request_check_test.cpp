// SPDX-License-Identifier: Apache-2.0
// Sampling parameters: what is refused, and that the message names the field.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "switchyard/request.h"

namespace switchyard {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Change = std::function<void(SamplingParams&)>;

void expect_refused(const char* field, const Change& change) {
  SamplingParams params;
  change(params);
  const Status status = params.check();
  ASSERT_FALSE(status.ok()) << field;
  EXPECT_EQ(status.error().code, Code::bad_request);
  EXPECT_EQ(status.error().message.rfind(field, 0), 0u) << status.error().message;
}

void expect_accepted(const Change& change) {
  SamplingParams params;
  change(params);
  const Status status = params.check();
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(SamplingParams, DefaultsAreAccepted) { EXPECT_TRUE(SamplingParams{}.check().ok()); }

TEST(SamplingParams, RefusesNumbersOutOfRange) {
  for (const float bad : {-0.1f, kNan, kInf, -kInf})
    expect_refused("temperature", [&](auto& p) { p.temperature = bad; });
  expect_refused("top_k", [](auto& p) { p.top_k = -1; });
  for (const float bad : {0.0f, -1.0f, 1.1f, kNan})
    expect_refused("top_p", [&](auto& p) { p.top_p = bad; });
  for (const float bad : {-0.1f, 1.1f, kNan})
    expect_refused("min_p", [&](auto& p) { p.min_p = bad; });
  for (const float bad : {0.0f, -1.0f, kNan, kInf})
    expect_refused("repetition_penalty", [&](auto& p) { p.repetition_penalty = bad; });
  for (const float bad : {-2.1f, 2.1f, kNan}) {
    expect_refused("presence_penalty", [&](auto& p) { p.presence_penalty = bad; });
    expect_refused("frequency_penalty", [&](auto& p) { p.frequency_penalty = bad; });
  }
}

TEST(SamplingParams, RefusesReportsAndBiasesOutOfRange) {
  expect_refused("logprobs", [](auto& p) { p.logprobs = -1; });
  expect_refused("logprobs", [](auto& p) { p.logprobs = 21; });
  expect_accepted([](auto& p) { p.logprobs = 20; });
  for (const float bad : {-100.5f, 101.0f, kNan, kInf})
    expect_refused("logit_bias", [&](auto& p) { p.logit_bias = {{1, bad}}; });
  expect_refused("logit_bias", [](auto& p) { p.logit_bias.resize(1025); });
  expect_accepted([](auto& p) { p.logit_bias.assign(1024, {1, 100}); });
}

TEST(SamplingParams, AcceptsTheEdges) {
  expect_accepted([](auto& p) { p.temperature = 0; });
  expect_accepted([](auto& p) { p.top_p = 1; });
  expect_accepted([](auto& p) { p.top_p = 1e-6f; });
  expect_accepted([](auto& p) { p.min_p = 1; });
  expect_accepted([](auto& p) { p.presence_penalty = -2, p.frequency_penalty = 2; });
  expect_accepted([](auto& p) { p.min_tokens = p.max_tokens; });
}

TEST(SamplingParams, RefusesLengthsThatMeanNothing) {
  expect_refused("max_tokens", [](auto& p) { p.max_tokens = 0; });
  expect_refused("min_tokens", [](auto& p) { p.min_tokens = -1; });
  expect_refused("min_tokens", [](auto& p) { p.min_tokens = p.max_tokens + 1; });
}

TEST(SamplingParams, RefusesStopsThatCannotWork) {
  expect_refused("stop[1] is empty", [](auto& p) { p.stop = {"a", ""}; });
  expect_refused("stop[0] is not valid UTF-8", [](auto& p) { p.stop = {"\xC3"}; });
  expect_refused("stop has 17", [](auto& p) { p.stop.assign(17, "a"); });
  expect_refused("stop[0] has 2000 bytes", [](auto& p) { p.stop = {std::string(2000, 'a')}; });
  expect_refused("stop_token_ids", [](auto& p) { p.stop_token_ids = {-3}; });
  expect_accepted([](auto& p) { p.stop = {"\xC3\xA9", "\n\n"}; });
}

TEST(FinishReason, Names) {
  EXPECT_STREQ(finish_reason_name(FinishReason::stop), "stop");
  EXPECT_STREQ(finish_reason_name(FinishReason::cancelled), "cancelled");
  EXPECT_STREQ(finish_reason_name(FinishReason::error), "error");
}

}  // namespace
}  // namespace switchyard
