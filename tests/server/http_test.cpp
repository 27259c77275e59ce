// SPDX-License-Identifier: Apache-2.0
// HTTP itself: malformed requests get an answer with an error object, or a closed connection, and the server goes on.
#include <atomic>
#include <chrono>
#include <future>
#include <ostream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

struct Malformed {
  const char* name;
  std::string bytes;
  int status;
};
void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }

std::string head(const std::string& lines) {
  return "POST /v1/completions HTTP/1.1\r\n" + lines + "\r\n";
}

const Malformed kMalformed[] = {
    {"both_lengths", head("Host: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"), 400},
    {"both_the_other_way", head("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n"),
     400},
    {"two_lengths", head("Host: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n") + "{}", 400},
    {"two_unequal_lengths", head("Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n") + "{}",
     400},
    {"negative_length", head("Host: a\r\nContent-Length: -1\r\n"), 400},
    {"a_length_that_is_none", head("Host: a\r\nContent-Length: 0x10\r\n"), 400},
    {"unknown_encoding", head("Host: a\r\nTransfer-Encoding: gzip\r\n"), 400},
    {"an_encoding_before_chunked",
     "GET /live HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
    {"chunked_in_an_old_version",
     "GET /live HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"bare_line_feeds", "GET /live HTTP/1.1\nHost: a\n\n\r\n\r\n", 400},
    {"NUL_in_a_header", std::string("GET /live HTTP/1.1\r\nHost: a\0b\r\n\r\n", 34), 400},
    {"no_Host", "GET /live HTTP/1.1\r\n\r\n", 400},
    {"two_Hosts", "GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
    {"absolute_target", "GET http://a/live HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"authority_target", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"dots", "GET /v1/../live HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"escaped_dots", "GET /v1/%2e%2e/live HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"escaped_NUL", "GET /live%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"broken_escape", "GET /live%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"version", "GET /live HTTP/3.7\r\nHost: a\r\n\r\n", 400},
    {"not_HTTP", "\x16\x03\x01\x02\r\n\r\n", 400},
    {"no_length", "POST /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n", 411},
    {"huge_length", head("Host: a\r\nContent-Length: 99999999999\r\n"), 413},
    {"huge_chunk", head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "fffffffff\r\n", 413},
    {"broken_chunk", head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "zz\r\n{}\r\n", 400},
    {"endless_chunk_line",
     head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "1;" + std::string(9000, 'a'), 431},
    {"endless_trailers",
     head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "0\r\nX: " + std::string(9000, 'a'), 431},
    {"compressed", head("Host: a\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n") + "{}", 415},
    {"long_header", "GET /live HTTP/1.1\r\nHost: a\r\nX: " + std::string(9000, 'x') + "\r\n\r\n",
     431},
    {"long_target", "GET /" + std::string(9000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
    {"form",
     "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: "
     "2\r\n\r\n{}",
     415},
    {"space_before_the_colon", "GET /live HTTP/1.1\r\nHost : a\r\n\r\n", 400},
    {"space_in_a_name", "GET /live HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n", 400},
    {"no_version", "GET /live\r\n\r\n", 400},
    {"two_hosts_in_one", "GET /live HTTP/1.1\r\nHost: a\r\nhOST: a\r\n\r\n", 400},
    {"plus_in_a_length", head("Host: a\r\nContent-Length: +2\r\n") + "{}", 400},
    {"list_of_lengths", head("Host: a\r\nContent-Length: 2, 2\r\n") + "{}", 400},
    {"chunked_twice", head("Host: a\r\nTransfer-Encoding: chunked, chunked\r\n") + "0\r\n\r\n",
     400},
    {"negative_chunk", head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "-1\r\n{}\r\n", 400},
    {"chunk_size_beyond_64_bits",
     head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "10000000000000000\r\n", 400},
    {"byte_order_mark", post_text("/v1/completions", "\xEF\xBB\xBF{\"prompt\":\"a\"}"), 400},
    {"invalid_utf8", post_text("/v1/completions", "{\"prompt\":\"\xFF\"}"), 400},
    {"duplicate_keys", post_text("/v1/completions", R"({"prompt":"a","prompt":"b"})"), 400},
    {"lone_surrogate", post_text("/v1/completions", R"({"prompt":"\ud800"})"), 400},
    {"nul_in_a_text", post_text("/v1/completions", std::string("{\"prompt\":\"a\0\"}", 15)), 400},
};

class HttpMalformed : public ::testing::TestWithParam<Malformed> {};

TEST_P(HttpMalformed, GetsAnErrorObjectAndTheServerGoesOn) {
  const Malformed& malformed = GetParam();
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(malformed.bytes);
  const Response response = client.read_response();
  ASSERT_EQ(response.status, malformed.status) << response.body;
  EXPECT_NE(response.error_code(), "");
  EXPECT_TRUE(response.headers.contains("x-request-id"));
  EXPECT_TRUE(response.headers.contains("openai-processing-ms"));
  EXPECT_EQ(engine.submitted(), 0u);
  const std::string count = fmt::format(R"(,code="{}"}} 1)", malformed.status);
  EXPECT_NE(get(running.port(), "/metrics").body.find(count), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Classes, HttpMalformed, ::testing::ValuesIn(kMalformed),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(Http, AFoldedHeaderIsOneLine) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const Response response = get(running.port(), "/live", "X-Request-Id: one\r\n two\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("x-request-id"), "one two") << "RFC 9112, 5.2";
}

TEST(Http, AnEscapedSlashIsPartOfAName) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.served_names = {"org/model"};
  RunningServer running(&engine, options);
  EXPECT_EQ(get(running.port(), "/v1/models/org%2Fmodel").status, 200);
  EXPECT_EQ(get(running.port(), "/v1%2Fmodels").status, 200) << "there is one path, decoded once";
  EXPECT_EQ(get(running.port(), "/v1/models/org%252Fmodel").status, 404) << "and no second time";
}

TEST(Http, ThoseWhoLeaveInTheMiddleOfARequestLeaveNothing) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const std::string whole = post_text("/v1/completions", R"({"prompt":"a"})");
  for (size_t size = 1; size < whole.size(); size += 7) {
    Client client(running.port());
    client.send(std::string_view(whole).substr(0, size));
  }
  const std::string one = R"(switchyard_http_connections{state="active"} 1)";
  const std::string none = R"(switchyard_http_connections{state="idle"} 0)";
  std::string metrics;
  for (int i = 0; i < 200 && metrics.find(none) == std::string::npos; ++i)
    metrics = get(running.port(), "/metrics").body;
  EXPECT_NE(metrics.find(none), std::string::npos);
  EXPECT_NE(metrics.find(one), std::string::npos) << "who asks for the metrics";
  EXPECT_EQ(engine.submitted(), 0u);
}

TEST(Http, AChunkWithoutAnEndRunsOutOfTime) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.body_s = 0.3;
  RunningServer running(&engine, options);
  Client client(running.port());
  client.send(head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "100000\r\n");
  std::atomic<bool> over{false};
  std::thread drips([&] {  // a byte now and then does not prolong the time
    while (!over) {
      client.send(" ");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_EQ(client.read_response().status, 408);
  over = true;
  drips.join();
}

TEST(Http, ABodyThatIsTooLargeIsRefusedByItsAnnouncementAndByItsSize) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.body_bytes = 1000;
  RunningServer running(&engine, options);
  EXPECT_EQ(post(running.port(), "/v1/completions", std::string(1001, ' ')).status, 413);
  Client chunked(running.port());
  chunked.send(head("Host: a\r\nTransfer-Encoding: chunked\r\n") + "3e8\r\n" +
               std::string(1000, ' ') + "\r\n3e8\r\n" + std::string(1000, ' ') + "\r\n");
  EXPECT_EQ(chunked.read_response().status, 413);
}

TEST(Http, ConnectionsAreKeptAndRequestsMayQueueOnThem) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(get_text("/live") + get_text("/nothing") + get_text("/live"));
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.read_response().status, 404);
  EXPECT_EQ(client.read_response().status, 200);
  client.send("GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().headers.at("connection"), "close");
  EXPECT_TRUE(client.is_closed());
}

TEST(Http, WhatIsSentAheadWaitsOutsideTheServerBeyondABound) {
  constexpr int kQuick = 2000;
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  std::string bytes;
  for (int i = 0; i < kQuick; ++i) bytes += get_text("/live");
  bytes += post_text("/v1/completions", R"({"prompt":"a"})");
  bytes += std::string(size_t{64} << 20, '\r');
  size_t taken = 0;
  std::thread sender([&] { taken = client.send_while_taken(bytes); });
  for (int i = 0; i < kQuick; ++i) EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(engine.wait_submitted(1));
  sender.join();
  EXPECT_LT(taken, size_t{14} << 20) << "the kernel's buffers, and 64 KiB";
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Http, ARequestMayComeByteByByteAndInChunks) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  for (const char c : get_text("/live")) client.send(std::string(1, c));
  EXPECT_EQ(client.read_response().status, 200);
  client.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send("5\r\n{\"pro\r\n");
  client.send("9\r\nmpt\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_NE(client.read_response().body.find("\"tokens\":[97]"), std::string::npos);
}

TEST(Http, AnEmptyChunkedBodyMayComeByteByByte) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  for (const std::string& end : {std::string("0\r\n\r\n"), std::string("0\r\nA: b\r\n\r\n")}) {
    client.send("GET /live HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char c : end) {
      client.send(std::string(1, c));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(client.read_response().status, 200);
  }
}

TEST(Http, ContinueIsSaidToThoseWhoWaitForIt) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  ASSERT_TRUE(client.wait_for("100 Continue\r\n\r\n"));
  EXPECT_EQ(client.read_response().status, 0 + 100);
  client.send("{\"prompt\":\"a\"}");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Http, SlowRequestsRunOutOfTime) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.header_s = options.http.body_s = 0.1;
  RunningServer running(&engine, options);
  Client half_head(running.port()), half_body(running.port());
  half_head.send("GET /live HTT");
  half_body.send(head("Host: a\r\nContent-Length: 10\r\n") + "{");
  EXPECT_EQ(half_head.read_response().status, 408);
  EXPECT_EQ(half_body.read_response().status, 408);
}

TEST(Http, ASilentConnectionIsClosed) {
  serve::ServerOptions options;
  options.http.idle_s = 0.1;
  RunningServer running(nullptr, options);
  Client silent(running.port());
  EXPECT_TRUE(silent.is_closed());
}

TEST(Http, TrailersAreNoHeaders) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nTrailer: "
      "x-request-id\r\n\r\ne\r\n{\"prompt\":\"a\"}\r\n0\r\nX-Request-Id: late\r\n\r\n");
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.headers.at("x-request-id"), "late");
}

TEST(Http, HealthIsToldWhileAllWorkersAreAtWork) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.workers = 1;
  RunningServer running(&engine, options);
  std::promise<void> at_work, told;
  engine.when_tokenizing = [&] {
    at_work.set_value();
    told.get_future().wait();
  };
  Client client(running.port());
  client.send(post_text("/v1/completions", R"({"prompt":"a"})"));
  at_work.get_future().wait();
  EXPECT_EQ(get(running.port(), "/live").status, 200);
  EXPECT_EQ(get(running.port(), "/health").status, 200);
  told.set_value();
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Http, OneConnectionTooManyIsToldSo) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.connections = 1;
  options.http.probe_connections = 1;
  RunningServer running(&engine, options);
  Client first(running.port());
  first.send(get_text("/live"));
  EXPECT_EQ(first.read_response().status, 200);
  Client second(running.port()), third(running.port());
  const Response refused = third.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error_code(), "too_many_connections");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_TRUE(refused.headers.contains("x-request-id"));
}

TEST(Http, ProbesAreAnsweredAlsoWhenAllPlacesAreTaken) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.connections = 1;
  RunningServer running(&engine, options);
  Client first(running.port());
  first.send(get_text("/live"));
  EXPECT_EQ(first.read_response().status, 200);
  for (const char* const path : {"/live", "/health"}) {
    const Response probe = get(running.port(), path);
    EXPECT_EQ(probe.status, 200) << path;
    EXPECT_EQ(probe.headers.at("connection"), "close") << path;
  }
  EXPECT_EQ(get(running.port(), "/v1/models").error_code(), "too_many_connections");
  Client silent(running.port());
  EXPECT_TRUE(silent.is_closed()) << "after two seconds";
}

TEST(Http, MethodsAndPathsThatAreNotServed) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  client.send("DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n");
  const Response wrong = client.read_response();
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(get(running.port(), "/v1/chat/completions").headers.at("allow"), "POST");
  EXPECT_EQ(post(running.port(), "/v1/responses", "{}").error_code(), "not_found");
  Client head_client(running.port());
  head_client.send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n" + get_text("/live"));
  ASSERT_TRUE(head_client.wait_for("live"));
  EXPECT_EQ(head_client.received().find("ready"), std::string::npos) << "HEAD has no body";
}

TEST(Http, OldClientsGetAStreamThatEndsWithTheConnection) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  Client client(running.port());
  const std::string body = R"({"prompt":"a","stream":true})";
  client.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                          body.size(), body));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x", FinishReason::stop);
  ASSERT_TRUE(client.wait_for("data: [DONE]\n\n"));
  EXPECT_EQ(client.received().find("chunked"), std::string::npos);
  EXPECT_TRUE(client.is_closed());
}

TEST(Http, RequestIdsAreTheClientsWhenTheyAreHarmless) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  EXPECT_EQ(get(running.port(), "/live", "X-Request-Id: mine\r\n").headers.at("x-request-id"),
            "mine");
  const std::string longer(200, 'x');
  EXPECT_NE(
      get(running.port(), "/live", "X-Request-Id: " + longer + "\r\n").headers.at("x-request-id"),
      longer);
}

}  // namespace
}  // namespace switchyard
