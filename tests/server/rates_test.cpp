// SPDX-License-Identifier: Apache-2.0
// How often a key may ask, and when those who are turned away shall come again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "serve/rate_limiter.h"
#include "serve/service_rate.h"
#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr const char* kBody = R"({"prompt":"a"})";

TEST(Rates, ABucketHoldsAMinutesWorthAndFillsEvenly) {
  serve::RateLimiter limiter(6, 2);
  const int64_t start = 5 * kSecond;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limiter.take(0, start), 0) << i;
  EXPECT_NEAR(limiter.take(0, start), 10, 1e-6) << "one call in ten seconds";
  EXPECT_NEAR(limiter.take(0, start + 4 * kSecond), 6, 1e-6) << "asking costs nothing";
  EXPECT_EQ(limiter.take(1, start), 0) << "another key has its own bucket";
  EXPECT_EQ(limiter.take(0, start + 11 * kSecond), 0);
  EXPECT_GT(limiter.take(0, start + 11 * kSecond), 0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limiter.take(0, start + 1000 * kSecond), 0) << i;
  EXPECT_GT(limiter.take(0, start + 1000 * kSecond), 0) << "no more than a minute's worth";
}

TEST(Rates, NoLimitIsNone) {
  serve::RateLimiter limiter(0, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limiter.take(0, kSecond), 0);
}

TEST(Rates, TheWaitIsOfThoseWhoWaitOverTheRateWhileFull) {
  serve::ServiceRate rate(2);
  EXPECT_EQ(rate.wait_s(), 1) << "nothing is known yet";
  int64_t now = kSecond;
  rate.change(1, now);
  now += 1000 * kSecond;  // one of two: that it takes long says nothing of the rate when full
  rate.change(9, now);
  for (int i = 0; i < 40; ++i) {  // two a second, and as many come
    rate.change(-1, now += kSecond / 2);
    rate.change(1, now);
  }
  // Eight wait before the one who asks: 9 / 2 s.
  EXPECT_NEAR(rate.wait_s(), 4.5, 0.1);
  for (int i = 0; i < 400; ++i) {  // it becomes slower: one in two seconds
    rate.change(-1, now += 2 * kSecond);
    rate.change(1, now);
  }
  EXPECT_NEAR(rate.wait_s(), 18, 1);
}

TEST(Rates, AKeyOverItsRateIsToldWhenToComeAgain) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  options.calls_per_minute = 2;
  ASSERT_TRUE(options.keys.add("one").ok() && options.keys.add("two").ok());
  RunningServer running(&engine, options);
  const auto tokenize = [&](const char* key) {
    return post(running.port(), "/tokenize", kBody,
                fmt::format("Authorization: Bearer {}\r\n", key));
  };
  EXPECT_EQ(tokenize("one").status, 200);
  EXPECT_EQ(tokenize("one").status, 200);
  const Response refused = tokenize("one");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error_code(), "rate_limited");
  const int wait = std::stoi(refused.headers.at("retry-after"));
  EXPECT_TRUE(wait >= 28 && wait <= 30) << wait;
  EXPECT_EQ(tokenize("two").status, 200) << "another key";
  EXPECT_EQ(tokenize("three").status, 401);
  EXPECT_EQ(get(running.port(), "/v1/models", "Authorization: Bearer one\r\n").status, 200);
}

TEST(Rates, KeysThatAreGivenTwiceAreOne) {
  serve::ApiKeys keys;
  for (const char* const key : {"a", "b", "a"}) ASSERT_TRUE(keys.add(key).ok());
  EXPECT_EQ(*keys.find("Bearer a"), *keys.find("bearer a"));
  EXPECT_NE(*keys.find("Bearer a"), *keys.find("Bearer b"));
  EXPECT_FALSE(keys.find("Bearer c").has_value());
  EXPECT_LT(*keys.find("Bearer a"), keys.size());
}

}  // namespace
}  // namespace switchyard
