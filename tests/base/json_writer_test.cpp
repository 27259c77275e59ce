// SPDX-License-Identifier: Apache-2.0
// What the writer writes is valid JSON and reads back as the same values.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"

namespace switchyard {
namespace {

template <class Write>
std::string written(Write write, int indent = 0) {
  std::string text;
  JsonWriter json(text, indent);
  write(json);
  return text;
}

std::string as_json(std::string_view text) {
  return written([&](JsonWriter& json) { json.string(text); });
}

std::string number(double value) {
  return written([&](JsonWriter& json) { json.real(value); });
}

TEST(JsonWriter, PutsCommasAndColons) {
  const std::string text = written([](JsonWriter& json) {
    json.begin_object().field("a", 1).field("b", "x").field("c", true);
    json.key("d").begin_array().integer(-1).null().begin_object().end_object().end_array();
    json.field("e", uint64_t{UINT64_MAX}).end_object();
  });
  EXPECT_EQ(text, R"({"a":1,"b":"x","c":true,"d":[-1,null,{}],"e":18446744073709551615})");
}

TEST(JsonWriter, IndentsWhenAsked) {
  const std::string text = written(
      [](JsonWriter& json) {
        json.begin_object().key("a").begin_array().integer(1).integer(2).end_array();
        json.key("b").begin_object().end_object().end_object();
      },
      2);
  EXPECT_EQ(text, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

TEST(JsonWriter, EscapesWhatJsonForbids) {
  EXPECT_EQ(as_json("a\"\\/\b\f\n\r\t\x01\x1F\x7F"), R"("a\"\\/\b\f\n\r\t\u0001\u001f)"
                                                     "\x7F\"");
  EXPECT_EQ(as_json(std::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(as_json("é€😀"), "\"é€😀\"");
}

TEST(JsonWriter, ReplacesEachBrokenPartOnce) {
  EXPECT_EQ(as_json("a\x80z"), "\"a\xEF\xBF\xBDz\"");
  EXPECT_EQ(as_json("\xE2\x82"), "\"\xEF\xBF\xBD\"");              // cut short at the end
  EXPECT_EQ(as_json("\xF0\x9F\x98z"), "\"\xEF\xBF\xBDz\"");        // cut short in between
  EXPECT_EQ(as_json("\xC0\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");  // overlong
  EXPECT_EQ(as_json("\xED\xA0\x80").size(), 2u + 3 * 3);           // a surrogate: three parts
}

TEST(JsonWriter, AnyBytesBecomeValidJson) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes)
      c = static_cast<char>(random() % 3 == 0 ? random() % 128 : random() % 256);
    const Result<Json> json = parse_json(as_json(bytes), "test");
    EXPECT_TRUE(json.ok()) << json.error().message;
  }
}

TEST(JsonWriter, DoublesReadBackExactlyAndAsDoubles) {
  std::mt19937_64 random(3);
  std::vector<double> values = {0.0, -0.0, 1.0, 0.1, 1e22, 1e-7, 5e-324, 1.7976931348623157e308};
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) {
    const Result<Json> json = parse_json(number(value), "test");
    ASSERT_TRUE(json.ok()) << number(value);
    ASSERT_EQ(json->kind(), Json::Kind::real) << number(value);
    EXPECT_EQ(std::bit_cast<uint64_t>(json->as_double()), std::bit_cast<uint64_t>(value));
  }
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(3), "3.0");
}

TEST(JsonWriter, WhatJsonLacksIsNull) {
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonWriter, WholeTreesMakeTheRoundTrip) {
  const std::string text =
      R"({"a":[1,-2,2.5,1.0,"x\ny",null,true,{"b":[]}],"c":18446744073709551615,"d":{}})";
  const Json json = *parse_json(text, "test");
  EXPECT_EQ(written([&](JsonWriter& writer) { writer.value(json); }), text);
}

TEST(JsonWriterDeathTest, BracketsMustMatch) {
  EXPECT_DEATH(written([](JsonWriter& json) { json.end_object(); }), "an end without its begin");
  EXPECT_DEATH(written([](JsonWriter& json) { json.key("a"); }), "a key outside an object");
}

}  // namespace
}  // namespace switchyard
