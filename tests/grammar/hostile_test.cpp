// SPDX-License-Identifier: Apache-2.0
// Schemas made to hurt: each is refused by a limit that is named, or compiles; all of it soon.
#include <chrono>

#include <gtest/gtest.h>

#include "grammar/accepts.h"
#include "grammar/matcher.h"

namespace switchyard::grammar {
namespace {

/// Far above what any takes (tens of milliseconds), for slow machines and sanitizers.
constexpr double kMostSeconds = 20;

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

std::string listed(int count, const std::string& format_head, const std::string& format_tail) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i ? "," : "") + format_head + std::to_string(i) + format_tail;
  return text;
}

class Hostile : public testing::Test {
 protected:
  ~Hostile() override {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
    EXPECT_LT(taken.count(), kMostSeconds);
  }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void expect_refused(const std::string& schema, std::string_view words) {
  const std::string message = refusal(schema);
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST_F(Hostile, SizeAndDepth) {
  expect_refused("\"" + std::string(kMaxSchemaBytes, 'a') + "\"", "at most 65536");
  expect_refused(repeated(R"({"items":)", 5000) + "{}" + repeated("}", 5000), "schema");
  compiled(repeated(R"({"items":)", 60) + "{}" + repeated("}", 60));
}

TEST_F(Hostile, Counts) {
  expect_refused(R"({"type": "string", "maxLength": 100000000})", "#/maxLength");
  expect_refused(R"({"type": "string", "minLength": 9007199254740991})", "#/minLength");
  expect_refused(R"({"type": "array", "minItems": 70000})", "#/minItems");
  expect_refused(R"({"type": "array", "maxItems": 60000})", "65536 states");
  expect_refused(R"({"type": "array", "maxItems": 9000, "items": {"type": "array", "maxItems": 9000,
                     "items": {"type": "string", "maxLength": 60000}}})",
                 "65536 states");
  compiled(R"({"type": "string", "maxLength": 20000})");
}

TEST_F(Hostile, Patterns) {
  expect_refused(R"-({"type": "string", "pattern": "^((((a{4000}){4000}){4000}){4000})$"})-",
                 "states");
  expect_refused(R"-({"type": "string", "pattern": "(a|b)*a(a|b){25}"})-", "#/pattern");
  expect_refused(R"-({"type": "string", "pattern": "^(a?){4096}(b?){4096}$"})-", "#/pattern");
  expect_refused(
      R"-({"type": "string", "pattern": ")-" + repeated("(", 1000) + repeated(")", 1000) + R"("})",
      "deeper than 32");
  compiled(R"-({"type": "string", "pattern": "^(((a*)*)*)*$"})-");
}

TEST_F(Hostile, ListsOfManyThings) {
  const Grammar many = compiled("{\"enum\": [" + listed(5000, "\"value ", "\"") + "]}");
  EXPECT_TRUE(accepts(many, "\"value 4999\""));
  std::vector<std::string> choices;
  for (int i = 0; i < 20000; ++i) choices.push_back(std::to_string(i) + std::string(100, 'x'));
  EXPECT_FALSE(Grammar::one_of(choices).ok());
  const std::string optional = listed(3000, "\"p", "\":true");
  expect_refused("{\"properties\": {" + optional + "}}", "1000000 transitions");
  compiled("{\"properties\": {" + listed(300, "\"p", "\":true") + "}}");
  compiled("{\"anyOf\": [" + listed(2000, "{\"const\": ", "}") + "]}");
}

TEST_F(Hostile, CirclesAndGrowth) {
  expect_refused(R"({"type": "object", "anyOf": [{"$ref": "#"}]})", "");
  expect_refused(
      R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})",
      "refers to itself");
  expect_refused(
      R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "allOf": [{"$ref": "#/$defs/a"}]})",
      "64 times");
  std::string defs;  // each says the one before twice: 2^40 parts
  for (int i = 1; i <= 40; ++i) {
    const std::string before = "{\"$ref\": \"#/$defs/d" + std::to_string(i - 1) + "\"}";
    defs += ",\"d" + std::to_string(i) + "\": {\"allOf\": [" + before + "," + before + "]}";
  }
  expect_refused(
      "{\"$defs\": {\"d0\": {\"type\": \"null\"}" + defs + "}, \"$ref\": \"#/$defs/d40\"}",
      "64 schemas together");
}

TEST_F(Hostile, DepthOfOutputIsBounded) {
  const Grammar grammar = compiled("{}");
  EXPECT_TRUE(accepts(grammar, repeated("[", kMaxDepth) + repeated("]", kMaxDepth)));
  EXPECT_FALSE(accepts(grammar, repeated("[", kMaxDepth + 2) + repeated("]", kMaxDepth + 2)));
  const std::string deep = repeated("[", kMaxDepth) + repeated("]", kMaxDepth);
  EXPECT_TRUE(parse_json(deep, "deep").ok());
}

/// 3^n ways to read n levels: followed up to kMaxThreads.
TEST_F(Hostile, AmbiguityIsBounded) {
  const Grammar grammar = compiled(R"({"$defs": {"n": {"anyOf": [
      {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2},
      {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 3},
      {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 4}, {"type": "null"}]}}, "$ref": "#/$defs/n"})");
  std::vector<std::string> bytes;
  for (const char* token : {"[", "]", ",", "n", "u", "l", "[[[[", "]]", "null", "[null,", "],["})
    bytes.emplace_back(token);
  bytes.emplace_back("");
  const auto tokens = std::make_shared<const TokenTrie>(bytes, std::vector<int32_t>{11});
  Matcher matcher(std::make_shared<Constraint>(grammar, tokens));
  for (int i = 0; i < 30; ++i) {
    ASSERT_NE(matcher.allowed()[0] & 1, 0u) << i;
    ASSERT_TRUE(matcher.accept(0));
  }
  while (!matcher.can_end()) ASSERT_TRUE(matcher.accept(1));
}

}  // namespace
}  // namespace switchyard::grammar
