// SPDX-License-Identifier: Apache-2.0
// The strict reader: what it takes, what it refuses, and at which byte.
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "base/text_checks.h"

namespace switchyard {
namespace {

Json parse(std::string_view text) {
  Result<Json> json = parse_json(text, "test");
  EXPECT_TRUE(json.ok()) << json.error().message;
  return json.ok() ? *std::move(json) : Json();
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, ReadsEveryKind) {
  const Json json = parse(
      R"({"n":null,"t":true,"i":-5,"u":18446744073709551615,"r":2.5,"s":"a\u00e9\n","a":[1,[]],"o":{}})");
  EXPECT_TRUE(json.find("n")->is_null());
  EXPECT_TRUE(json.find("t")->as_bool());
  EXPECT_EQ(json.find("i")->as_int(), -5);
  EXPECT_EQ(json.find("u")->as_unsigned(), UINT64_MAX);
  EXPECT_EQ(json.find("r")->as_double(), 2.5);
  EXPECT_EQ(json.find("i")->as_double(), -5.0);
  EXPECT_EQ(json.find("s")->as_string(), "a\xC3\xA9\n");
  EXPECT_EQ(json.find("a")->as_array().size(), 2u);
  EXPECT_TRUE(json.find("o")->as_object().empty());
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_EQ(json.find("i")->find("x"), nullptr);
}

TEST(Json, KeepsTheOrderOfMembers) {
  const Json json = parse(R"({"z":1,"a":2,"m":3})");
  std::string order;
  for (const auto& [name, value] : json.as_object()) order += name;
  EXPECT_EQ(order, "zam");
}

TEST(Json, NumbersKeepTheirKind) {
  EXPECT_EQ(parse("9223372036854775807").kind(), Json::Kind::integer);
  EXPECT_EQ(parse("-9223372036854775808").as_int(), INT64_MIN);
  EXPECT_EQ(parse("9223372036854775808").kind(), Json::Kind::unsigned_integer);
  EXPECT_EQ(parse("1.0").kind(), Json::Kind::real);
  EXPECT_EQ(parse("1e2").kind(), Json::Kind::real);
}

TEST(Json, TextIsNoBool) {
  EXPECT_TRUE(Json("false").is_string());
  EXPECT_TRUE(Json(1).is_integer());
  EXPECT_EQ(Json("x").kind_name(), "string");
}

TEST(Json, ReadsToTheAllowedDepth) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "test").ok());
  const Result<Json> refused = parse_json(nested(kMaxJsonDepth + 1), "test");
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().message, "nesting deeper than 64, byte 64"));
}

TEST(Json, HostileDepthDoesNotOverflowTheStack) {
  for (const char* unit : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += unit;
    EXPECT_FALSE(parse_json(text, "test").ok());
  }
}

struct Refusal {
  const char* name;
  std::string_view text;
  std::string_view message;  // what the message must say
};

class JsonRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(JsonRefuses, WithWordsAndPlace) {
  const Result<Json> json = parse_json(GetParam().text, "file.json");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.error().code, Code::bad_file);
  EXPECT_TRUE(json.error().message.starts_with("file.json: "));
  EXPECT_TRUE(has(json.error().message, GetParam().message));
}

using namespace std::string_view_literals;

INSTANTIATE_TEST_SUITE_P(
    Cases, JsonRefuses,
    testing::Values(
        Refusal{"empty", "", "not valid JSON at byte 0"}, Refusal{"spaces", "  ", "byte 2"},
        Refusal{"trailing_content", R"({"a":1} x)", "byte 8: content after the end"},
        Refusal{"two_values", "1 2", "byte 2: content after the end"},
        Refusal{"trailing_nul", "1\0"sv, "byte 1"},
        Refusal{"trailing_comma_array", "[1,]", "byte 3: expected a value"},
        Refusal{"trailing_comma_object", R"({"a":1,})", "byte 7: expected a member name"},
        Refusal{"missing_colon", R"({"a" 1})", "byte 5: expected ':'"},
        Refusal{"missing_comma", "[1 2]", "byte 3: expected ',' or ']'"},
        Refusal{"unclosed_array", "[1", "byte 2"}, Refusal{"wrong_bracket", "[1}", "byte 2"},
        Refusal{"name_without_quotes", "{a:1}", "byte 1: expected a member name"},
        Refusal{"comment", "[1 /* x */]", "byte 3"}, Refusal{"single_quotes", "['a']", "byte 1"},
        Refusal{"nan", "[NaN]", "byte 1"}, Refusal{"infinity", "[-Infinity]", "byte 1"},
        Refusal{"literal", "[truth]", "byte 1: expected a value"},
        Refusal{"leading_zero", "[01]", "byte 1: not a number"}, Refusal{"plus", "[+1]", "byte 1"},
        Refusal{"point_without_digits", "[1.]", "byte 1: not a number"},
        Refusal{"empty_exponent", "[1e]", "byte 1: not a number"},
        Refusal{"integer_over_range", "[18446744073709551616]", "byte 1: a number out of range"},
        Refusal{"integer_under_range", "[-9223372036854775809]", "byte 1: a number out of range"},
        Refusal{"real_over_range", "[1e999]", "byte 1: a number out of range"},
        Refusal{"byte_order_mark", "\xEF\xBB\xBF[]", "byte 0: a byte order mark"},
        Refusal{"lone_high_surrogate", R"(["\ud800"])", "byte 2: half of a surrogate pair"},
        Refusal{"lone_low_surrogate", R"(["a\udc00"])", "byte 3: half of a surrogate pair"},
        Refusal{"two_high_surrogates", R"(["\ud800\ud800"])", "byte 2: half of a surrogate pair"},
        Refusal{"unknown_escape", R"(["\x"])", "byte 2: an unknown escape"},
        Refusal{"short_unicode_escape", R"(["\u12"])", "byte 2: expected four hexadecimal"},
        Refusal{"control_character", "[\"a\nb\"]", "byte 3: a control character"},
        Refusal{"unclosed_string", "[\"a", "byte 1: a string without its closing quote"},
        Refusal{"stray_continuation", "[\"\x80\"]", "byte 2: invalid UTF-8"},
        Refusal{"overlong_utf8", "[\"\xC0\xAF\"]", "byte 2: invalid UTF-8"},
        Refusal{"utf8_surrogate", "[\"\xED\xA0\x80\"]", "byte 2: invalid UTF-8"},
        Refusal{"utf8_above_unicode", "[\"\xF4\x90\x80\x80\"]", "byte 2: invalid UTF-8"},
        Refusal{"duplicate", R"({"a":1,"b":2,"a":3})", "\"a\" occurs twice in one object (at $)"},
        Refusal{"duplicate_by_escape", R"({"a":1,"\u0061":3})", "\"a\" occurs twice"},
        Refusal{"duplicate_deep", R"({"x":[0,{"k":1,"k":2}]})", "(at $.x[1])"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Json, ManyMembersAreReadInLinearTime) {
  // A tokenizer's vocabulary in shape: quadratic work in any step would run for minutes.
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i)
    fmt::format_to(std::back_inserter(text), "\"token{0}\":{0},", i);
  text.back() = '}';
  const Json json = parse(text);
  ASSERT_EQ(json.as_object().size(), 300'000u);
  EXPECT_EQ(json.as_object()[299'999].second.as_int(), 299'999);
  text.back() = ',';
  EXPECT_TRUE(has(parse_json(text + "\"token7\":0}", "test").error().message, "token7"));
}

TEST(Json, ReadsFilesUpToALimit) {
  const TempFolder folder;
  const std::string path = folder.write("a.json", "[1,2]");
  EXPECT_EQ(read_json_file(path)->as_array().size(), 2u);
  EXPECT_FALSE(read_json_file(path, 4).ok());
  EXPECT_TRUE(has(read_json_file(folder.write("b.json", "[1,")).error().message,
                  "b.json: not valid JSON at byte 3"));
}

TEST(JsonDeathTest, WrongKindIsABug) {
  EXPECT_DEATH((void)parse("1").as_string(), "JSON is integer");
  EXPECT_DEATH((void)parse("18446744073709551615").as_int(), "JSON is unsigned integer");
}

}  // namespace
}  // namespace switchyard
