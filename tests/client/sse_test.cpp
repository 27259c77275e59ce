// SPDX-License-Identifier: Apache-2.0
// Events come out the same however the bytes were cut.
#include "client/sse.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::client {
namespace {

std::vector<std::string> events_in_pieces(const std::string& bytes, size_t piece) {
  SseParser parser;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += piece)
    EXPECT_TRUE(parser.push(std::string_view(bytes).substr(at, piece), [&](std::string_view data) {
      events.emplace_back(data);
      return true;
    }));
  return events;
}

TEST(Sse, EventsAreTheSameHoweverTheBytesAreCut) {
  const std::string bytes =
      ": ping\n\ndata: one\n\nevent: x\nid: 7\ndata:two\ndata:  three\r\n\r\ndata\rdata: "
      "\r\rretry: "
      "5\n\ndata: [DONE]\n\ndata: unended";
  const std::vector<std::string> expected{"one", "two\n three", "\n", "[DONE]"};
  for (size_t piece = 1; piece <= bytes.size(); ++piece)
    EXPECT_EQ(events_in_pieces(bytes, piece), expected) << "pieces of " << piece;
}

TEST(Sse, TheReaderMayStop) {
  SseParser parser;
  int seen = 0;
  EXPECT_FALSE(parser.push("data: a\n\ndata: b\n\n", [&](std::string_view) {
    ++seen;
    return false;
  }));
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(parser.overflowed());
}

TEST(Sse, AnEventWithoutAnEndIsNotKept) {
  SseParser parser;
  const std::string line(SseParser::kMaxEventBytes / 2, 'x');
  const auto nothing = [](std::string_view) { return true; };
  EXPECT_TRUE(parser.push(line, nothing));
  EXPECT_FALSE(parser.push(line + "y", nothing));
  EXPECT_TRUE(parser.overflowed());
}

}  // namespace
}  // namespace switchyard::client
