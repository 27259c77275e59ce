// SPDX-License-Identifier: Apache-2.0
// The JSON reader is strict and keeps order; the writer's output reads back to the same tree.
#include "base/json.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Json, KeepsOrderAndKinds) {
  const auto json =
      parse_json(R"({"b": 1, "a": [true, null, -2, 1.5, "x\n\u00e9"], "c": {}})", "t");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->as_object()[0].first, "b");
  EXPECT_EQ(json->as_object()[1].first, "a");
  const Json::Array& a = json->find("a")->as_array();
  EXPECT_TRUE(a[0].as_bool());
  EXPECT_TRUE(a[1].is_null());
  EXPECT_EQ(a[2].as_int(), -2);
  EXPECT_EQ(a[3].as_double(), 1.5);
  EXPECT_EQ(a[4].as_string(), "x\n\xC3\xA9");
  EXPECT_EQ(json->find("missing"), nullptr);
}

TEST(Json, LargeIntegersKeepTheirValue) {
  const auto json = parse_json("[9223372036854775807, 18446744073709551615]", "t");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->as_array()[0].as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(json->as_array()[1].kind(), Json::Kind::unsigned_integer);
}

struct Malformed {
  const char* name;
  std::string text;
};

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

const Malformed kMalformed[] = {
    {"empty", ""},
    {"only_space", "  "},
    {"truncated_object", R"({"a": 1)"},
    {"truncated_string", R"({"a": "b)"},
    {"trailing_bytes", "{} x"},
    {"two_documents", "{}{}"},
    {"duplicate_key", R"({"a": 1, "b": 2, "a": 3})"},
    {"duplicate_key_inside", R"([{"x": {"a": 1, "a": 1}}])"},
    {"nan", "[NaN]"},
    {"infinity", "[Infinity]"},
    {"integer_above_uint64", "[18446744073709551616]"},
    {"integer_below_int64", "[-9223372036854775809]"},
    {"double_out_of_range", "[1e999]"},
    {"leading_zero", "[01]"},
    {"single_quotes", "{'a': 1}"},
    {"comment", "[1] // one"},
    {"trailing_comma", "[1,]"},
    {"invalid_utf8", "[\"\xFF\"]"},
    {"lone_surrogate", R"(["\ud800"])"},
    {"byte_order_mark", "\xEF\xBB\xBF{}"},
    {"control_character", std::string("[\"a\x01\"]")},
    {"too_deep", nested(kMaxJsonDepth + 1)},
    {"far_too_deep", nested(1000000)},
};

class Refused : public testing::TestWithParam<Malformed> {};

TEST_P(Refused, NamesTheFile) {
  const auto json = parse_json(GetParam().text, "some.json");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.error().code, Code::bad_file);
  EXPECT_NE(json.error().message.find("some.json"), std::string::npos) << json.error().message;
}

INSTANTIATE_TEST_SUITE_P(Json, Refused, testing::ValuesIn(kMalformed),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(Json, DepthAtTheLimitIsRead) { EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "t").ok()); }

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += fmt::format("{}\"key{}\": {}", i > 0 ? "," : "", i, i);
  const auto json = parse_json(text + "}", "t");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->as_object().size(), 300000u);
}

TEST(JsonWriter, ReadsBack) {
  const char* text = R"({"a":[1,-2,0.1,1e+300,true,null,"q\"\\\u0001\u20ac"],"o":{"x":{}},"e":[]})";
  const Json tree = *parse_json(text, "t");
  std::string out;
  JsonWriter(out).value(tree);
  const auto again = parse_json(out, "written");
  ASSERT_TRUE(again.ok()) << out;
  std::string twice;
  JsonWriter(twice).value(*again);
  EXPECT_EQ(out, twice);
}

TEST(JsonWriter, WritesWhatJsonLacksAsNullAndBadUtf8AsReplacement) {
  std::string out;
  JsonWriter(out)
      .begin_array()
      .real(std::nan(""))
      .real(std::numeric_limits<double>::infinity())
      .string("a\xFFz")
      .end_array();
  EXPECT_EQ(out, "[null,null,\"a\xEF\xBF\xBDz\"]");
}

TEST(JsonWriter, IndentsWhenAsked) {
  std::string out;
  JsonWriter(out, 2).begin_object().field("a", 1).key("b").begin_array().end_array().end_object();
  EXPECT_EQ(out, "{\n  \"a\": 1,\n  \"b\": []\n}");
}

}  // namespace
}  // namespace switchyard
