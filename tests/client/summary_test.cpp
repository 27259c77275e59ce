// SPDX-License-Identifier: Apache-2.0
// Sums of records whose figures are known.
#include "client/summary.h"

#include <gtest/gtest.h>

namespace switchyard::client {
namespace {

constexpr int64_t kMs = 1'000'000;

/// Sent at `sent`, text at the given milliseconds after, ended with the last; all after the begin at 1 ms.
Outcome answered(int64_t sent_ms, const std::vector<int64_t>& text_ms) {
  Outcome outcome;
  outcome.end = Outcome::End::answered;
  outcome.planned_ns = outcome.sent_ns = (1 + sent_ms) * kMs;
  outcome.first_event_ns = outcome.first_text_ns = outcome.sent_ns + text_ms.front() * kMs;
  outcome.last_text_ns = outcome.last_choice_ns = outcome.ended_ns =
      outcome.sent_ns + text_ms.back() * kMs;
  for (size_t i = 1; i < text_ms.size(); ++i)
    outcome.gaps_s.push_back(static_cast<float>(text_ms[i] - text_ms[i - 1]) * 1e-3f);
  outcome.text_events = std::ssize(text_ms);
  return outcome;
}

TEST(Summary, FiguresOfThreeAnswers) {
  Record record;
  record.start_ns = 1 * kMs;
  record.end_ns = 1001 * kMs;
  record.text_events = {4, 7, 1};
  record.outcomes = {answered(0, {10, 20, 40}), answered(100, {30, 40}), answered(200, {80})};
  record.outcomes[0].has_usage = true;  // one token had no text of its own
  record.outcomes[0].output_tokens = 4;
  record.outcomes[0].prompt_tokens = 6;
  const Summary summary = summarize(record, *parse_slo("ttft:30,tpot:12"));
  EXPECT_EQ(summary.answered, 3);
  EXPECT_DOUBLE_EQ(summary.duration_s, 1.0);
  EXPECT_EQ(summary.input_tokens, 6);
  EXPECT_EQ(summary.output_tokens, 4 + 2 + 1);
  EXPECT_EQ(summary.without_usage, 2);
  EXPECT_DOUBLE_EQ(summary.per_second(summary.output_tokens), 7.0);
  EXPECT_EQ(summary.peak_events_per_s, 7);
  EXPECT_NEAR(summary.ttft_s.mean, 0.04, 1e-9);
  EXPECT_NEAR(summary.ttft_s.median, 0.03, 1e-9);
  EXPECT_EQ(summary.tpot_s.count, 2) << "one token alone has no time per further token";
  EXPECT_NEAR(summary.tpot_s.mean, 0.01, 1e-9);
  EXPECT_EQ(summary.itl_s.count, 3);
  EXPECT_NEAR(summary.itl_s.most, 0.02, 1e-8);
  EXPECT_NEAR(summary.e2e_s.most, 0.08, 1e-9);
  EXPECT_EQ(summary.good, 2);
}

TEST(Summary, TokensWithoutTextOfTheirOwnDoNotMakeTheOthersFaster) {
  Outcome outcome = answered(0, {10, 20});
  outcome.last_choice_ns = outcome.sent_ns + 40 * kMs;  // two more tokens, whose text never came
  outcome.has_usage = true;
  outcome.output_tokens = 4;
  EXPECT_NEAR(latencies_of(outcome).tpot_s, 0.01, 1e-9);
}

TEST(Summary, AnAnswerWithoutTextKeepsNoTimeOfTexts) {
  Outcome outcome = answered(0, {10});
  outcome.first_text_ns = outcome.last_text_ns = 0;
  outcome.text_events = 0;
  for (const char* const slo : {"ttft:1000", "tpot:1000", "itl:1000"})
    EXPECT_FALSE(keeps(*parse_slo(slo), latencies_of(outcome))) << slo;
  EXPECT_TRUE(keeps(*parse_slo("e2e:1000"), latencies_of(outcome)));
  EXPECT_TRUE(keeps(*parse_slo("tpot:1"), latencies_of(answered(0, {10})))) << "one token alone";
}

TEST(Summary, LatenciesCountFromTheTurn) {
  Outcome outcome = answered(0, {10, 20});
  outcome.planned_ns -= 100 * kMs;
  EXPECT_NEAR(latencies_of(outcome).ttft_s, 0.11, 1e-9);
  EXPECT_NEAR(latencies_of(outcome).e2e_s, 0.12, 1e-9);
}

TEST(Summary, FailuresAreCountedByKindAndNotTimed) {
  Record record;
  record.start_ns = 0;
  record.end_ns = 1000 * kMs;
  for (const char* const detail : {"first", "second"}) {
    Outcome cut;
    cut.failure = "cut";
    cut.detail = detail;
    record.outcomes.push_back(cut);
  }
  Outcome away;
  away.end = Outcome::End::turned_away;
  away.failure = "http 429 queue_full";
  record.outcomes.push_back(away);
  Outcome left;
  left.end = Outcome::End::cancelled;
  left.sent_ns = 30 * kMs;
  left.planned_ns = 10 * kMs;
  record.outcomes.push_back(left);
  const Summary summary = summarize(record, {});
  EXPECT_EQ(summary.answered, 0);
  EXPECT_EQ(summary.failed, 2);
  EXPECT_EQ(summary.turned_away, 1);
  EXPECT_EQ(summary.cancelled, 1);
  EXPECT_EQ(summary.failures.at("cut").count, 2);
  EXPECT_EQ(summary.failures.at("cut").example, "first");
  EXPECT_EQ(summary.failures.at("http 429 queue_full").count, 1);
  EXPECT_EQ(summary.ttft_s.count, 0);
  EXPECT_EQ(summary.ttft_s.p99, 0);
  EXPECT_NEAR(summary.late_s.most, 0.02, 1e-9);
}

TEST(Summary, PercentilesLieBetweenTheNearestValues) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.median, 50);
  EXPECT_DOUBLE_EQ(spread.p90, 90);
  EXPECT_DOUBLE_EQ(spread.p99, 99);
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).median, 1.5);
}

TEST(Summary, SlosAreReadOrRefused) {
  EXPECT_DOUBLE_EQ(parse_slo("ttft:200,itl:50")->itl_ms, 50);
  EXPECT_TRUE(parse_slo("")->empty());
  for (const char* const text :
       {"ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:1x", "x:1", "ttft:inf"})
    EXPECT_FALSE(parse_slo(text).ok()) << text;
}

}  // namespace
}  // namespace switchyard::client
