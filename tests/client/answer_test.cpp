// SPDX-License-Identifier: Apache-2.0
// What becomes of a stream, event by event, and of refusals.
#include "client/answer.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::client {
namespace {

constexpr int64_t kMs = 1'000'000;

/// Events one millisecond apart, the first at 1 ms; then the stream ends by itself.
Outcome read(const std::vector<std::string>& events) {
  Outcome outcome;
  AnswerReader reader(outcome);
  int64_t now = 0;
  for (const std::string& event : events)
    if (!reader.take(event, now += kMs)) return outcome;
  reader.end_of_stream();
  return outcome;
}

TEST(Answer, ChatWithARoleFirstAndUsageLast) {
  const Outcome outcome = read(
      {R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]})",
       R"({"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]})",
       R"({"choices":[{"index":0,"delta":{"content":"b"}}]})",
       R"({"choices":[{"index":0,"delta":{"reasoning_content":"c"}}],"usage":null})",
       R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})",
       R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}})", "[DONE]"});
  EXPECT_EQ(outcome.end, Outcome::End::answered);
  EXPECT_EQ(outcome.first_event_ns, 1 * kMs);
  EXPECT_EQ(outcome.first_text_ns, 2 * kMs) << "the role is no text";
  EXPECT_EQ(outcome.last_text_ns, 4 * kMs);
  ASSERT_EQ(outcome.gaps_s.size(), 2u);
  EXPECT_FLOAT_EQ(outcome.gaps_s[0], 1e-3f);
  EXPECT_EQ(outcome.prompt_tokens, 5);
  EXPECT_EQ(outcome.tokens(), 9);
}

TEST(Answer, CompletionsWithoutUsageCountTheirEvents) {
  const Outcome outcome = read({R"({"choices":[{"text":"a","finish_reason":null}]})",
                                R"({"choices":[{"text":"b","finish_reason":"stop"}]})"});
  EXPECT_EQ(outcome.end, Outcome::End::answered) << "a stream without [DONE] is whole all the same";
  EXPECT_FALSE(outcome.has_usage);
  EXPECT_EQ(outcome.tokens(), 2);
}

TEST(Answer, NoFinishReasonIsNoAnswer) {
  EXPECT_EQ(read({R"({"choices":[{"text":"a"}]})", "[DONE]"}).failure, "unfinished");
  EXPECT_EQ(read({R"({"choices":[{"text":"a","finish_reason":""}]})"}).failure, "unfinished");
  EXPECT_EQ(read({}).failure, "unfinished");
}

TEST(Answer, ErrorsInTheStreamAreNamed) {
  const Outcome ours = read(
      {R"({"choices":[{"text":"a"}]})", R"({"error":{"code":"internal_error","message":"why"}})"});
  EXPECT_EQ(ours.end, Outcome::End::failed);
  EXPECT_EQ(ours.failure, "error event internal_error");
  EXPECT_EQ(ours.detail, "why");
  EXPECT_EQ(read({R"({"error":{"code":500,"type":"server_error","message":"m"}})"}).failure,
            "error event server_error");
  EXPECT_EQ(read({R"({"error":"plain"})"}).failure, "error event");
  const std::string wild = "\\u001b[2J" + std::string(500, 'x');
  const Outcome hostile = read({R"({"error":{"code":")" + wild + R"("}})"});
  EXPECT_EQ(hostile.failure.find('\x1b'), std::string::npos);
  EXPECT_LT(hostile.failure.size(), 100u);
}

TEST(Answer, EventsThatAreNone) {
  for (const char* const event : {"{", "[]", "7", R"({"object":"x"})", R"({"choices":{}})"})
    EXPECT_EQ(read({event}).failure, "malformed event") << event;
}

TEST(Answer, RefusalsByStatusAndCode) {
  Outcome outcome;
  describe_refusal(429, R"({"error":{"code":"queue_full","message":"later"}})", outcome);
  EXPECT_EQ(outcome.end, Outcome::End::turned_away);
  EXPECT_EQ(outcome.failure, "http 429 queue_full");
  EXPECT_EQ(outcome.detail, "later");
  describe_refusal(502, "<html>bad gateway", outcome);
  EXPECT_EQ(outcome.end, Outcome::End::failed);
  EXPECT_EQ(outcome.failure, "http 502");
  EXPECT_EQ(outcome.detail, "<html>bad gateway");
  describe_refusal(200, "{}", outcome);
  EXPECT_EQ(outcome.failure, "not a stream");
}

}  // namespace
}  // namespace switchyard::client
