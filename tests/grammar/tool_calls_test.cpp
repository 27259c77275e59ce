// SPDX-License-Identifier: Apache-2.0
// Outputs that call tools in the formats of the families, alone, behind free text, or instead of JSON.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "grammar/accepts.h"
#include "grammar/matcher.h"
#include "grammar/validator.h"

namespace switchyard::grammar {
namespace {

std::vector<Tool> tools() {
  return {{"add", *parse_json(R"({"type": "object", "properties": {"n": {"type": "integer"}},
                                  "required": ["n"], "additionalProperties": false})",
                              "tool")},
          {"stop", Json()}};
}

const std::string kAdd =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call>";

ToolCallFormat listed() {
  ToolCallFormat format;
  format.begin = "[TOOL_CALLS] [";
  format.call_begin = format.call_end = "";
  format.between = ", ";
  format.end = "]";
  return format;
}

ToolCallFormat bare() {
  ToolCallFormat format;
  format.begin = "<calls>";
  format.call_begin = "<call>";
  format.behind_name = "<sep>";
  format.call_end = "</call>";
  format.between = "";
  format.end = "</calls>";
  return format;
}

TEST(ToolCalls, ListsOfCalls) {
  ToolCallFormat format = listed();
  const std::string add = R"({"name": "add", "arguments": {"n": 1}})";
  const Grammar one = *Grammar::tool_calls(tools(), format);
  EXPECT_TRUE(accepts(one, "[TOOL_CALLS] [" + add + "]"));
  EXPECT_FALSE(accepts(one, "[TOOL_CALLS] [" + add + ", " + add + "]"));
  EXPECT_FALSE(accepts(one, "[TOOL_CALLS] [" + add));
  format.several = true;
  const Grammar several = *Grammar::tool_calls(tools(), format);
  EXPECT_TRUE(accepts(several, "[TOOL_CALLS] [" + add + ", " + add + "]"));
  EXPECT_FALSE(accepts(several, "[TOOL_CALLS] [" + add + ", ]"));
  EXPECT_FALSE(accepts(several, "[TOOL_CALLS] []"));
}

TEST(ToolCalls, BareNames) {
  ToolCallFormat format = bare();
  format.several = true;
  const Grammar grammar = *Grammar::tool_calls(tools(), format);
  EXPECT_TRUE(accepts(grammar, "<calls><call>add<sep>{\"n\": 1}</call></calls>"));
  EXPECT_TRUE(accepts(
      grammar, "<calls><call>add<sep>{\"n\": 1}</call><call>stop<sep>{\"a\": []}</call></calls>"));
  for (const char* text :
       {"<calls><call>add<sep>{}</call></calls>", "<calls><call>sub<sep>{}</call></calls>",
        "<calls><call>stop<sep>1</call></calls>", "<calls></calls>"})
    EXPECT_FALSE(accepts(grammar, text)) << text;
}

TEST(ToolCalls, AnyTextMayStandBeforeTheMarker) {
  const Grammar grammar = *Grammar::tool_calls(tools(), {}, {.marker = "<tool_call>"});
  for (const std::string_view text :
       {"", "Hello.", "<tool_cal", "<<tool_call", "\xF0\x9F\x98\x80 <tool"})
    EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* const before : {"", "Hello. ", "<", "<tool_call", "<tool<tool_"})
    EXPECT_TRUE(accepts(grammar, before + kAdd)) << before;
  for (const std::string_view text : {"<tool_call>", "a<tool_call>\n{}\n</tool_call>"})
    EXPECT_FALSE(accepts(grammar, text)) << text;
  EXPECT_FALSE(
      accepts(grammar, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(accepts(grammar, kAdd + " and more"));
}

TEST(ToolCalls, JsonMayComeInstead) {
  const Json schema = *parse_json(R"({"type": "array", "items": {"type": "integer"}})", "schema");
  const Grammar grammar = *Grammar::tool_calls(tools(), {}, {.schema = &schema});
  EXPECT_TRUE(accepts(grammar, "[1,2]"));
  EXPECT_TRUE(accepts(grammar, kAdd));
  for (const std::string& text : {std::string(), std::string("{}"), "[1]" + kAdd})
    EXPECT_FALSE(accepts(grammar, text)) << text;
  const Grammar object = *Grammar::tool_calls(tools(), {}, {.any_object = true});
  EXPECT_TRUE(accepts(object, "{\"a\": 1}"));
  EXPECT_TRUE(accepts(object, kAdd));
  const Json impossible = *parse_json(R"({"not": {}})", "schema");
  EXPECT_FALSE(Grammar::tool_calls(tools(), {}, {.schema = &impossible}).ok());
}

TEST(ToolCalls, RefusalsNameTheToolOrTheFormat) {
  std::vector<Tool> broken = tools();
  broken[1].parameters =
      *parse_json(R"({"type": "object", "properties": {"x": {"not": {}}}})", "t");
  EXPECT_NE(Grammar::tool_calls(broken, {}).error().message.find("stop: #/properties/x"),
            std::string::npos)
      << Grammar::tool_calls(broken, {}).error().message;
  EXPECT_FALSE(Grammar::tool_calls(std::vector<Tool>(257, {"f", Json()}), {}).ok());
  EXPECT_FALSE(Grammar::tool_calls(tools(), {}, {.marker = "<other>"}).ok());
  EXPECT_FALSE(Grammar::tool_calls(std::vector<Tool>{{"", Json()}}, {}).ok());
}

TEST(ToolCalls, AsManyToolsAsMayBeCanAllBeCalled) {
  std::vector<Tool> many;
  for (int i = 0; i < 256; ++i) many.push_back({fmt::format("tool_{}", i), Json()});
  const Grammar grammar = *Grammar::tool_calls(many, {});
  const Grammar without_object = *Grammar::tool_calls(many, bare());
  for (const Tool& tool : many) {
    EXPECT_TRUE(accepts(grammar, fmt::format("<tool_call>\n{{\"name\":\"{}\", \"arguments\": "
                                             "{{}}}}\n</tool_call>",
                                             tool.name)));
    EXPECT_TRUE(
        accepts(without_object, fmt::format("<calls><call>{}<sep>{{}}</call></calls>", tool.name)));
  }
}

/// Random tokens of those that are allowed, as a model of random weights would choose; hasty after a while.
std::string random_output(const std::shared_ptr<Constraint>& constraint, uint32_t seed) {
  std::mt19937 random(seed);
  Matcher matcher(constraint);
  std::string text;
  for (int step = 0; step < 5000; ++step) {
    const std::span<const uint64_t> mask = matcher.allowed();
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < constraint->tokens().num_tokens(); ++token)
      if (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) allowed.push_back(token);
    int32_t token = allowed.at(random() % allowed.size());
    if (step > 60 && random() % 2 == 0)
      for (const std::string_view closing : {"]", "}", "\""})
        for (const int32_t other : allowed)
          if (constraint->tokens().bytes(other) == closing) token = other;
    EXPECT_TRUE(matcher.accept(token));
    if (constraint->tokens().is_end(token)) return text;
    text += constraint->tokens().bytes(token);
    if (matcher.must_end()) return text;
  }
  return text + "(endless)";
}

TEST(ToolCalls, RandomModelsCallWithValidArguments) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back({static_cast<char>(byte)});
  for (const char* token : {"<tool_call>", "</tool_call>", "\n{\"", "name\": \"", "}}\n", "add"})
    bytes.emplace_back(token);
  bytes.emplace_back("");
  const auto tokens = std::make_shared<const TokenTrie>(
      bytes, std::vector<int32_t>{static_cast<int32_t>(bytes.size() - 1)});
  const auto constraint = std::make_shared<Constraint>(*Grammar::tool_calls(tools(), {}), tokens);
  int adds = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = random_output(constraint, seed);
    ASSERT_TRUE(text.starts_with("<tool_call>\n") && text.ends_with("\n</tool_call>")) << text;
    const auto call = read_json(text.substr(12, text.size() - 12 - 13));
    ASSERT_TRUE(call.has_value()) << text;
    const bool add = call->find("name")->as_string() == "add";
    adds += add;
    const Json& arguments = *call->find("arguments");
    EXPECT_TRUE(add ? arguments.find("n")->is_integer() : arguments.is_object()) << text;
  }
  EXPECT_GT(adds, 20);
  EXPECT_LT(adds, 180);
}

}  // namespace
}  // namespace switchyard::grammar
