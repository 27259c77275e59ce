// SPDX-License-Identifier: Apache-2.0
// Load on servers that break every rule: each failure has its kind, and none is lost or hangs.
#include "client/load.h"

#include <gtest/gtest.h>

#include "client/fetch.h"
#include "client/hostile_server.h"
#include "client/summary.h"

namespace switchyard::client {
namespace {

constexpr char kHangUp = HostileServer::kHangUp, kSilence = HostileServer::kSilence;
const std::string kText = R"({"choices":[{"text":"a","finish_reason":null}]})";
const std::string kEnd =
    R"({"choices":[{"text":"b","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}})";

Workload workload() {
  Workload drawn;
  drawn.model = "m";
  drawn.prompts = {"x"};
  return drawn;
}

Record play_all(const HostileServer& server, const Workload& drawn, Point point) {
  if (point.timeout_s == 600) point.timeout_s = 10;
  auto record = play(*parse_target(server.url()), drawn, "secret", point);
  EXPECT_TRUE(record.ok());
  EXPECT_EQ(std::ssize(record->outcomes), point.num_requests) << "every request ends once";
  return *std::move(record);
}

/// One request; then what became of it.
Outcome only(const std::string& answer, Point point = {}) {
  HostileServer server({answer});
  point.num_requests = 1;
  return play_all(server, workload(), point).outcomes.at(0);
}

TEST(Load, GoodAnswersOnOneConnection) {
  HostileServer server(std::vector<std::string>(3, stream({kText, kEnd, "[DONE]"})));
  const Record record = play_all(server, workload(), {.num_requests = 3});
  for (const Outcome& outcome : record.outcomes) {
    EXPECT_EQ(outcome.end, Outcome::End::answered) << outcome.failure << outcome.detail;
    EXPECT_EQ(outcome.tokens(), 2);
    EXPECT_EQ(outcome.text_events, 2);
    EXPECT_LE(outcome.sent_ns, outcome.first_text_ns);
    EXPECT_LE(outcome.last_text_ns, outcome.ended_ns);
  }
  EXPECT_EQ(server.connections(), 1);
  EXPECT_NE(server.requests()[0].find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_EQ(summarize(record, {}).failed, 0);
}

TEST(Load, EventsAreTimedWhenTheyComeAndNotAtTheEnd) {
  const std::string pause(1, HostileServer::kPause);
  const std::string events = stream({kText}, "") + pause;
  const std::string more = stream({kText, kEnd}, "").substr(stream({}, "").size());
  const Outcome outcome =
      only(events + more + pause + stream({"[DONE]"}).substr(stream({}, "").size()));
  ASSERT_EQ(outcome.end, Outcome::End::answered) << outcome.failure;
  ASSERT_EQ(outcome.gaps_s.size(), 2u);
  EXPECT_GE(outcome.gaps_s[0], 0.04f) << "a pause lies between the first two";
  EXPECT_LT(outcome.gaps_s[1], 0.04f) << "and none between the others";
  EXPECT_GE(outcome.ended_ns - outcome.last_text_ns, 40'000'000);
}

struct Hostile {
  const char* name;
  std::string answer;
  const char* failure;
};

const Hostile kHostile[] = {
    {"closed before an answer", std::string(1, kHangUp), "cut"},
    {"cut in the head", std::string("HTTP/1.1 200 OK\r\nContent-") + kHangUp, "cut"},
    {"cut between events", stream({kText}, "") + kHangUp, "cut"},
    {"cut in an event", stream({kText}, "40\r\ndata: {\"choi") + kHangUp, "cut"},
    {"cut after the finish, before the end", stream({kText, kEnd}, "") + kHangUp, "cut"},
    {"no finish_reason", stream({kText, "[DONE]"}), "unfinished"},
    {"not JSON", stream({"{oops"}), "malformed event"},
    {"no choices", stream({R"({"id":"x"})"}), "malformed event"},
    {"error event", stream({kText, R"({"error":{"code":"engine_dead","message":"m"}})"}),
     "error event engine_dead"},
    {"a whole answer", whole(200, "{}"), "not a stream"},
    {"an error", whole(500, R"({"error":{"code":"internal_error","message":"m"}})"),
     "http 500 internal_error"},
    {"an error in another shape", whole(502, R"({"detail":"x"})"), "http 502"},
    {"an error without a length",
     std::string("HTTP/1.1 503 X\r\nConnection: close\r\n\r\nbusy") + kHangUp, "http 503"},
    {"not HTTP", "220 smtp ready\r\n\r\n", "malformed http"},
    {"a broken chunk", stream({kText}, "zz\r\n"), "malformed http"},
};

TEST(Load, EveryWayToFailHasItsKind) {
  for (const Hostile& hostile : kHostile) {
    const Outcome outcome = only(hostile.answer);
    EXPECT_EQ(outcome.end, Outcome::End::failed) << hostile.name;
    EXPECT_EQ(outcome.failure, hostile.failure) << hostile.name << ": " << outcome.detail;
    EXPECT_GT(outcome.ended_ns, 0) << hostile.name;
  }
}

TEST(Load, ADoneIsTheEndWhateverFollows) {
  const Outcome outcome = only(stream({kText, kEnd, "[DONE]", "{oops"}, "") + kHangUp);
  EXPECT_EQ(outcome.end, Outcome::End::answered) << outcome.failure;
}

TEST(Load, AStreamThatEndsWithTheConnection) {
  const Outcome outcome =
      only("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: " +
           kEnd + "\n\n" + kHangUp);
  EXPECT_EQ(outcome.end, Outcome::End::answered) << outcome.failure;
}

TEST(Load, SilenceRunsOutOfTime) {
  const Outcome outcome = only(stream({kText}, "") + kSilence, {.timeout_s = 0.1});
  EXPECT_EQ(outcome.failure, "timeout");
  EXPECT_EQ(outcome.text_events, 1);
}

TEST(Load, NobodyThere) {
  std::string url;
  {
    const HostileServer gone({});
    url = gone.url();
  }
  const auto record = play(*parse_target(url), workload(), "", {.num_requests = 2});
  ASSERT_TRUE(record.ok());
  ASSERT_EQ(record->outcomes.size(), 2u);
  EXPECT_EQ(record->outcomes[0].failure, "connect");
  EXPECT_FALSE(fetch(*parse_target(url), "/v1/models", "").ok());
}

TEST(Load, AConnectionThatWasClosedWhileItRestedIsNoFailure) {
  const std::string good = stream({kText, kEnd, "[DONE]"});
  HostileServer server({good + kHangUp, good, good});
  // Of requests with time between them: the close has come before the next one begins.
  const Record record = play_all(server, workload(), {.rate = 20, .num_requests = 3});
  for (const Outcome& outcome : record.outcomes)
    EXPECT_EQ(outcome.end, Outcome::End::answered) << outcome.failure << outcome.detail;
  EXPECT_EQ(server.connections(), 2);
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST(Load, ARequestThatTheServerDropsIsAFailureAndIsNotSentTwice) {
  const std::string good = stream({kText, kEnd, "[DONE]"});
  const std::string drops = std::string(3, HostileServer::kPause) + kHangUp;
  HostileServer server({good, drops, good});
  const Record record = play_all(server, workload(), {.num_requests = 3});
  EXPECT_EQ(record.outcomes[0].end, Outcome::End::answered);
  EXPECT_EQ(record.outcomes[1].failure, "cut");
  EXPECT_EQ(record.outcomes[2].end, Outcome::End::answered);
  EXPECT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(summarize(record, {}).resent, 0);
}

TEST(Load, ACloseThatCrossesWithARequestIsCountedAndTheRequestSentAgain) {
  const std::string good = stream({kText, kEnd, "[DONE]"});
  HostileServer server({good, std::string(1, kHangUp), good, good});
  const Record record = play_all(server, workload(), {.num_requests = 3});
  const Summary summary = summarize(record, {});
  EXPECT_EQ(summary.answered, 3);
  EXPECT_EQ(summary.resent, 1);
  EXPECT_EQ(server.requests().size(), 4u);
}

TEST(Load, TwoClosesInARowAreAFailure) {
  const std::string good = stream({kText, kEnd, "[DONE]"});
  HostileServer server({good, std::string(1, kHangUp), std::string(1, kHangUp)});
  EXPECT_EQ(play_all(server, workload(), {.num_requests = 2}).outcomes[1].failure, "cut");
}

TEST(Load, AnAnswerBeforeTheRequestWasReadEndsTheConnection) {
  // More than the buffers of a socket hold, and a server that reads but the head of it.
  Workload large = workload();
  large.prompts = {std::string(size_t{24} << 20, 'x')};
  HostileServer server({whole(413, R"({"error":{"code":"body_too_large"}})"),
                        whole(413, R"({"error":{"code":"body_too_large"}})")},
                       HostileServer::Reads::head);
  const Record record = play_all(server, large, {.num_requests = 2});
  for (const Outcome& outcome : record.outcomes)
    EXPECT_EQ(outcome.failure, "http 413 body_too_large") << outcome.detail;
  EXPECT_EQ(server.connections(), 2);
}

TEST(Load, AStreamThatStaysOpenAfterItsDoneIsNotWaitedFor) {
  const Outcome outcome = only(stream({kText, kEnd, "[DONE]"}, "") + kSilence);
  EXPECT_EQ(outcome.end, Outcome::End::answered) << outcome.failure;
  EXPECT_LT(outcome.ended_ns - outcome.sent_ns, 900'000'000);
}

TEST(Load, AClosedLoopPausesAfterFailures) {
  std::string url;
  {
    const HostileServer gone({});
    url = gone.url();
  }
  const auto record =
      play(*parse_target(url), workload(), "", {.concurrency = 2, .duration_s = 0.5});
  ASSERT_TRUE(record.ok());
  EXPECT_LT(record->outcomes.size(), 30u);
  EXPECT_GT(record->outcomes.size(), 2u);
}

TEST(Load, APageThatIsNotWholeIsAnError) {
  const auto page = [](const std::string& answer) {
    HostileServer server({answer});
    return fetch(*parse_target(server.url()), "/metrics", "", 0.2);
  };
  EXPECT_TRUE(page(whole(200, "all")).ok());
  EXPECT_TRUE(page(whole(404, "all")).ok());
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
  for (const std::string& part :
       {head + kSilence, head + kHangUp,
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n")})
    EXPECT_FALSE(page(part).ok()) << part;
}

TEST(Load, ThoseWhoAreTurnedAwayAreCountedAndWaitAsToldInAClosedLoop) {
  HostileServer server(
      {whole(429, R"({"error":{"code":"queue_full","message":"m"}})", "Retry-After: 1\r\n"),
       stream({kEnd, "[DONE]"})});
  const Record record = play_all(server, workload(), {.num_requests = 2});
  EXPECT_EQ(record.outcomes[0].end, Outcome::End::turned_away);
  EXPECT_EQ(record.outcomes[1].end, Outcome::End::answered);
  EXPECT_GE(record.outcomes[1].sent_ns - record.outcomes[0].ended_ns, 990'000'000);
}

TEST(Load, ThoseWhoLeaveCloseTheirConnection) {
  Workload leaving = workload();
  leaving.cancel_rate = 1;
  leaving.output_tokens = {1, 1};
  HostileServer server(std::vector<std::string>(20, stream({kText}, "") + kSilence));
  const Record record = play_all(server, leaving, {.concurrency = 20, .num_requests = 20});
  for (const Outcome& outcome : record.outcomes)
    EXPECT_EQ(outcome.end, Outcome::End::cancelled) << outcome.failure;
  EXPECT_EQ(record.peak_concurrency, 20);
}

double planned_seconds(uint32_t requests, double rate) {
  double sum = 0;
  for (uint32_t i = 0; i < requests; ++i) sum += draw_gap_s(workload(), 0, i, rate);
  return sum;
}

/// An answer that takes 100 ms.
std::string slow_answer() {
  return std::string(2, HostileServer::kPause) + stream({kEnd, "[DONE]"});
}

TEST(Load, AnOpenLoopDoesNotWaitForAnswers) {
  HostileServer server(std::vector<std::string>(40, slow_answer()));
  const Record record =
      play_all(server, workload(), {.concurrency = 0, .rate = 200, .num_requests = 40});
  const double seconds = static_cast<double>(record.end_ns - record.start_ns) * 1e-9;
  EXPECT_GE(seconds, planned_seconds(40, 200));
  EXPECT_LT(seconds, planned_seconds(40, 200) + 2) << "40 answers in a row would take four seconds";
  EXPECT_GT(record.peak_concurrency, 4);
  EXPECT_EQ(summarize(record, {}).answered, 40);
}

TEST(Load, WhoWaitsForAPlaceIsLateAndItsLatenciesSaySo) {
  HostileServer server(std::vector<std::string>(10, slow_answer()));
  const Record record =
      play_all(server, workload(), {.concurrency = 1, .rate = 200, .num_requests = 10});
  EXPECT_EQ(record.peak_concurrency, 1);
  const Summary summary = summarize(record, *parse_slo("e2e:500"));
  EXPECT_EQ(summary.answered, 10);
  EXPECT_GT(summary.late_s.most, 0.7) << "the last waits for nine others";
  EXPECT_GT(summary.e2e_s.most, 0.8);
  EXPECT_GT(summary.ttft_s.most, 0.8);
  EXPECT_LT(summary.good, 6);
}

TEST(Load, ADurationAlsoEndsThoseWhoAreLate) {
  HostileServer server(std::vector<std::string>(1000, slow_answer()));
  const auto record = play(*parse_target(server.url()), workload(), "",
                           {.concurrency = 1, .rate = 100, .duration_s = 0.5});
  ASSERT_TRUE(record.ok());
  EXPECT_LT(static_cast<double>(record->end_ns - record->start_ns) * 1e-9, 1.5);
  EXPECT_GT(record->not_sent, 10);
  EXPECT_EQ(summarize(*record, {}).not_sent, record->not_sent);
}

TEST(Load, ADurationEndsTheSending) {
  HostileServer server(std::vector<std::string>(100'000, stream({kEnd, "[DONE]"})));
  const auto record =
      play(*parse_target(server.url()), workload(), "", {.concurrency = 2, .duration_s = 0.2});
  ASSERT_TRUE(record.ok());
  const Summary summary = summarize(*record, {});
  EXPECT_GT(summary.answered, 2);
  EXPECT_EQ(summary.failed, 0);
  EXPECT_GE(summary.duration_s, 0.15);
}

}  // namespace
}  // namespace switchyard::client
