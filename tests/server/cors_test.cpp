// SPDX-License-Identifier: Apache-2.0
// Pages of other origins: nothing by default, and exactly what was named.
#include "serve/cors.h"

#include <gtest/gtest.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr const char* kOrigin = "Origin: https://app.example\r\n";
/// Of OpenAI's SDK in a browser.
const std::string kSdkHeaders =
    "authorization,content-type,openai-organization,x-stainless-arch,x-stainless-lang,"
    "x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-timeout";
const std::string kPreflight =
    std::string("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\n") + kOrigin +
    "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " + kSdkHeaders +
    "\r\n\r\n";

Response preflight(uint16_t port) {
  Client client(port);
  client.send(kPreflight);
  return client.read_response();
}

bool allows(const Response& response) {
  return response.headers.contains("access-control-allow-origin");
}

TEST(CorsHeaders, NobodyByDefault) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  EXPECT_EQ(preflight(running.port()).status, 405);
  EXPECT_FALSE(allows(preflight(running.port())));
  EXPECT_FALSE(allows(get(running.port(), "/live", kOrigin)));
}

TEST(CorsHeaders, ANamedOriginAndNoOther) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  ASSERT_TRUE(options.cors.add("https://app.example").ok());
  ASSERT_TRUE(options.keys.add("k").ok());
  RunningServer running(&engine, options);
  const Response asked = preflight(running.port());
  EXPECT_EQ(asked.status, 200) << "a preflight carries no key";
  EXPECT_EQ(asked.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(asked.headers.at("access-control-allow-headers"), kSdkHeaders);
  EXPECT_EQ(asked.headers.at("vary"), "Origin");
  const Response refused = get(running.port(), "/v1/models", kOrigin);
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(allows(refused)) << "a page may read why";
  const Response other = get(running.port(), "/live", "Origin: https://evil.example\r\n");
  EXPECT_FALSE(allows(other));
  EXPECT_EQ(other.headers.at("vary"), "Origin");
  EXPECT_FALSE(allows(get(running.port(), "/live")));
  Client stream(running.port());
  stream.send(post_text("/v1/completions", R"({"prompt":"a","stream":true})",
                        std::string(kOrigin) + "Authorization: Bearer k\r\n"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(1, "x", FinishReason::stop);
  EXPECT_TRUE(allows(stream.read_response()));
}

TEST(CorsHeaders, APageThatWasNotNamedChangesNothing) {
  ScriptedEngine engine;
  RunningServer running(&engine);
  const auto post_from = [&](const std::string& origin) {
    return post(running.port(), "/tokenize", R"({"prompt":"a"})", "Origin: " + origin + "\r\n");
  };
  const Response refused = post_from("https://evil.example");
  EXPECT_EQ(refused.status, 403) << "browsers send some requests without a preflight";
  EXPECT_EQ(refused.error_code(), "origin_not_allowed");
  EXPECT_EQ(post_from("null").status, 403);
  EXPECT_EQ(post_from("http://test").status, 200) << "our own: the host that is asked";
  EXPECT_EQ(post(running.port(), "/tokenize", R"({"prompt":"a"})").status, 200) << "no browser";
}

TEST(CorsHeaders, APageMayReadWhyItsRequestBecameNone) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.http.body_bytes = 10;
  ASSERT_TRUE(options.cors.add("https://app.example").ok());
  RunningServer running(&engine, options);
  const Response refused = post(running.port(), "/tokenize", R"({"prompt":"abc"})", kOrigin);
  EXPECT_EQ(refused.status, 413);
  EXPECT_TRUE(allows(refused));
}

TEST(CorsHeaders, Everybody) {
  serve::ServerOptions options;
  ASSERT_TRUE(options.cors.add("*").ok());
  RunningServer running(nullptr, options);
  EXPECT_EQ(get(running.port(), "/live", kOrigin).headers.at("access-control-allow-origin"), "*");
}

TEST(CorsHeaders, OriginsThatAreNone) {
  serve::Cors cors;
  for (const char* const origin :
       {"", "app.example", "https://", "https://a/", "https://a/path", "https://*.example",
        "https://A.example", "https://a, https://b", "null"})
    EXPECT_FALSE(cors.add(origin).ok()) << origin;
  EXPECT_TRUE(cors.add("http://localhost:3000").ok());
}

}  // namespace
}  // namespace switchyard
