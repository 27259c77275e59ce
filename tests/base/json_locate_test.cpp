// SPDX-License-Identifier: Apache-2.0
// The scan that finds the place of a fault agrees with the parser on what is a fault.
#include "base/json_locate.h"

#include <random>

#include <gtest/gtest.h>

#include "base/json.h"

namespace switchyard {
namespace {

TEST(JsonLocate, SeesNothingWrongInGoodTexts) {
  for (const char* text : {"null", " [ ] ", "{}", R"([{"a":[]},{"b":{}}])", "-0.0e-5",
                           R"("\ud83d\ude00\\\"\/\b")", "1e-999", "[[],[[]],{}]"}) {
    const JsonFault fault = locate_json_fault(text);
    EXPECT_FALSE(fault.found) << text << ": " << fault.what << " at " << fault.offset;
    EXPECT_TRUE(parse_json(text, "test").ok()) << text;
  }
}

TEST(JsonLocate, AgreesWithTheParserOnMutatedTexts) {
  const std::string seed =
      R"({"a": [1, -2.5e+3, true, null, "x\u00e9\ud83d\ude00\n"], "b": {"c": [], "d": {}}, "é": 18446744073709551615})";
  const std::string_view bytes = "{}[]:,\"\\u0123456789aeE+-. \ntrfl\x80\xC3\xED\xF4";
  std::mt19937 random(1);
  int good = 0, bad = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string text = seed;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char with = bytes[random() % bytes.size()];
      if (random() % 3 == 0) {
        text.erase(at, 1);
      } else if (random() % 2 == 0) {
        text.insert(at, 1, with);
      } else {
        text[at] = with;
      }
    }
    const Result<Json> json = parse_json(text, "test");
    const bool twice = !json.ok() && json.error().message.find("twice") != std::string::npos;
    EXPECT_EQ(locate_json_fault(text).found, !json.ok() && !twice) << text;
    ++(json.ok() ? good : bad);
  }
  EXPECT_GT(good, 1000);
  EXPECT_GT(bad, 1000);
}

}  // namespace
}  // namespace switchyard
