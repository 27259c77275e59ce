// SPDX-License-Identifier: Apache-2.0
#include "client/target.h"

#include <gtest/gtest.h>

namespace switchyard::client {
namespace {

TEST(Target, Urls) {
  const Target plain = *parse_target("http://127.0.0.1:8000");
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.prefix, "");
  const Target v6 = *parse_target("http://[::1]:81/base/v1/");
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.port, 81);
  EXPECT_EQ(v6.prefix, "/base") << "the paths bring /v1";
  EXPECT_EQ(v6.host_text, "[::1]:81");
  EXPECT_EQ(parse_target("localhost")->port, 80);
}

TEST(Target, WhatIsNone) {
  for (const char* const url :
       {"", "http://", "https://a", "http://a:0", "http://a:65536", "http://a:x", "http://[::1",
        "http://a b", "http://a/?x", "http://user@a", "http://a\r\nX: y"})
    EXPECT_FALSE(parse_target(url).ok()) << url;
}

TEST(Target, RequestsOnTheWire) {
  const Target target = *parse_target("http://h:1/p");
  EXPECT_EQ(request_text(target, {"/v1/models", "", ""}),
            "GET /p/v1/models HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(request_text(target, {"/x", "{}", "k"}),
            "POST /p/x HTTP/1.1\r\nHost: h:1\r\nAccept: text/event-stream\r\nAuthorization: Bearer "
            "k\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

}  // namespace
}  // namespace switchyard::client
