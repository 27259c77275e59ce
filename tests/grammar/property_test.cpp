// SPDX-License-Identifier: Apache-2.0
// Random schemas against a plain validator: a text is accepted exactly when its value is valid and it is written the way
// grammars write (order of properties, plain spelling); walks by masks end in valid values.
#include <algorithm>

#include <gtest/gtest.h>

#include "grammar/accepts.h"
#include "grammar/matcher.h"
#include "grammar/schema_value.h"
#include "grammar/validator.h"

namespace switchyard::grammar {
namespace {

std::string text_of(const Json& value) {
  std::string text;
  JsonWriter(text).value(value);
  return text;
}

/// Properties in the order of the schema where there is one: what draw_value makes, mutations keep.
void compare(const Json& schema, const Grammar& grammar, const Json& value, bool complete) {
  const std::string text = text_of(value);
  const bool valid = is_valid(value, schema, schema), accepted = accepts(grammar, text);
  if (accepted) {
    EXPECT_TRUE(valid) << text_of(schema) << "\n" << text;
  } else if (complete) {
    EXPECT_FALSE(valid) << text_of(schema) << "\n" << text;
  }
}

/// Whether every valid value whose properties come in order is accepted: false where the grammar is narrower on purpose.
bool is_complete(const std::string& schema) {
  // Objects are closed once they declare; numbers are written by the writer; allOf orders properties by part.
  return schema.find("allOf") == std::string::npos;
}

TEST(Property, AcceptsWhatIsValid) {
  Random random(20261130);
  int compiled_schemas = 0, accepted = 0, refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const Json schema = draw_schema(random);
    const auto grammar = Grammar::compile(schema);
    if (!grammar.ok()) continue;
    ++compiled_schemas;
    const bool complete = is_complete(text_of(schema));
    for (int k = 0; k < 30; ++k) {
      const Json value = draw_value(schema, schema, random);
      compare(schema, *grammar, value, complete);
      compare(schema, *grammar, mutated(value, random), false);
      ++(accepts(*grammar, text_of(value)) ? accepted : refused);
    }
  }
  EXPECT_GT(compiled_schemas, 800);
  EXPECT_GT(accepted, 8000);
  EXPECT_GT(refused, 500);
}

/// All bytes, and some longer tokens: across structure, halves of characters, the same text twice.
std::vector<std::string> vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back({static_cast<char>(byte)});
  for (const char* token :
       {"{\"",  "\":",     "\": ",      ", \"",     "\", \"", "\"}",        "}}",  "]}",  "},{",
        "[[",   "]]",      "\",",       "null",     "true",   "false",      "tru", "{}",  "[]",
        "\"\"", "{\"a\":", "{\"ab\": ", "12",       "-1",     "0.",         "a",   "ab",  "aab",
        " a",   "\xc3",    "\xa9",      "\xe4\xbd", "\xa0\"", "\xc3\xa9\"", "\\n", "\\u", "\\\"",
        "00",   "\":\"",   "\":[",      "\":{",     "}, ",    "1,",         "e1"})
    bytes.emplace_back(token);
  bytes.emplace_back("");  // the end
  return bytes;
}

/// The allowed tokens.
std::vector<int32_t> listed(std::span<const uint64_t> mask) {
  std::vector<int32_t> tokens;
  for (size_t word = 0; word < mask.size(); ++word)
    for (int bit = 0; bit < 64; ++bit)
      if (mask[word] >> bit & 1) tokens.push_back(static_cast<int32_t>(word) * 64 + bit);
  return tokens;
}

/// A random token, after a while one of those that close.
int32_t choose(std::span<const int32_t> allowed, const TokenTrie& tokens, int step,
               Random& random) {
  if (std::find(allowed.begin(), allowed.end(), tokens.ends()[0]) != allowed.end() &&
      (step > 20 || random() % 3 == 0))
    return tokens.ends()[0];
  if (step > 40 && random() % 2 == 0) {
    for (const std::string_view closing : {"\"", "}", "]"})
      for (const int32_t token : allowed)
        if (tokens.bytes(token) == closing) return token;
  }
  return allowed[random() % allowed.size()];
}

/// Walks until the end; the text so far.
std::string walk(Matcher& matcher, const TokenTrie& tokens, Random& random) {
  std::string text;
  for (int step = 0; step < 4000; ++step) {
    const std::vector<int32_t> allowed = listed(matcher.allowed());
    if (allowed.empty()) return text + "(stuck)";
    const int32_t token = choose(allowed, tokens, step, random);
    if (!matcher.accept(token)) return text + "(refused what it allows)";
    if (tokens.is_end(token)) return text;
    text += tokens.bytes(token);
  }
  return text + "(endless)";
}

TEST(Property, WalksByMasksEndInValidValues) {
  Random random(5);
  const auto bytes = vocabulary();
  const auto tokens = std::make_shared<const TokenTrie>(
      bytes, std::vector<int32_t>{static_cast<int32_t>(bytes.size() - 1)});
  int walks = 0;
  for (int i = 0; i < 500; ++i) {
    const Json schema = draw_schema(random);
    auto grammar = Grammar::compile(schema);
    if (!grammar.ok()) continue;
    const auto constraint = std::make_shared<Constraint>(*std::move(grammar), tokens);
    for (int k = 0; k < 6; ++k, ++walks) {
      Matcher matcher(constraint);
      const std::string text = walk(matcher, *tokens, random);
      const auto value = read_json(text);
      ASSERT_TRUE(value.has_value()) << text_of(schema) << "\n" << text;
      EXPECT_TRUE(is_valid(*value, schema, schema)) << text_of(schema) << "\n" << text;
    }
  }
  EXPECT_GT(walks, 1500);
}

TEST(Property, AMaskIsWhatAcceptTakes) {
  Random random(11);
  const auto bytes = vocabulary();
  const auto tokens = std::make_shared<const TokenTrie>(
      bytes, std::vector<int32_t>{static_cast<int32_t>(bytes.size() - 1)});
  for (int i = 0; i < 300; ++i) {
    auto grammar = Grammar::compile(i % 10 == 0 ? Json(true) : draw_schema(random));
    if (!grammar.ok()) continue;
    Matcher matcher(std::make_shared<Constraint>(*std::move(grammar), tokens));
    for (int step = 0; step < 60; ++step) {
      const std::vector<int32_t> allowed = listed(matcher.allowed());
      std::vector<int32_t> taken;
      for (int32_t token = 0; token < tokens->num_tokens(); ++token) {
        if (!matcher.accept(token)) continue;
        taken.push_back(token);
        matcher.rollback(1);
      }
      ASSERT_EQ(allowed, taken) << "at step " << step;
      const int32_t next = allowed[random() % allowed.size()];
      matcher.accept(next);
      if (tokens->is_end(next)) break;
    }
  }
}

}  // namespace
}  // namespace switchyard::grammar
