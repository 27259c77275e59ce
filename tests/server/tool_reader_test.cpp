// SPDX-License-Identifier: Apache-2.0
// Texts that call, nearly call, or do not: in one piece and byte by byte, the same is said and called, and nothing is lost.
#include "serve/tool_reader.h"

#include <gtest/gtest.h>

namespace switchyard::serve {
namespace {

ToolFormat mistral() {
  return {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS] [", "", "", "", ", ", "]"};
}
ToolFormat bare() {
  return {"bare",        "<calls>",      "<calls>", "<call>function<sep>",
          "\n```json\n", "\n```</call>", "\n",      "</calls>"};
}

/// "said|name(arguments)|..." of a text that comes in pieces of `length` bytes.
std::string read(const ToolFormat& format, ToolReader::Text kind, const std::string& text,
                 size_t length) {
  ToolReader reader(format, {"add", "stop"}, kind);
  std::vector<AnswerPiece> pieces;
  for (size_t at = 0; at < text.size(); at += length) reader.push(text.substr(at, length), pieces);
  reader.finish(pieces);
  std::string out;
  int calls = 0;
  bool open = false;
  AnswerPiece::Kind last = AnswerPiece::Kind::call;
  for (const AnswerPiece& piece : pieces) {
    const bool goes_on = piece.kind == AnswerPiece::Kind::content && last == piece.kind;
    if (piece.kind != AnswerPiece::Kind::arguments) {
      if (open) out += ")";
      open = piece.kind == AnswerPiece::Kind::call;
      if (!out.empty() && !goes_on) out += "|";
    }
    if (piece.kind == AnswerPiece::Kind::call) ++calls;
    EXPECT_TRUE(!open || piece.call == calls - 1);
    out += piece.text + (piece.kind == AnswerPiece::Kind::call ? "(" : "");
    last = piece.kind;
  }
  EXPECT_EQ(reader.num_calls(), calls);
  return out + (open ? ")" : "");
}

void expect(const ToolFormat& format, ToolReader::Text kind, const std::string& text,
            const std::string& expected) {
  for (const size_t length : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, text.size()})
    EXPECT_EQ(read(format, kind, text, std::max<size_t>(length, 1)), expected)
        << text << " by " << length;
}

const ToolFormat kHermes;
constexpr auto kFree = ToolReader::Text::free;
constexpr auto kForced = ToolReader::Text::forced;

TEST(ToolReader, TextWithoutCallsIsSaid) {
  expect(kHermes, kFree, "", "");
  expect(kHermes, kFree, "Hello <b> world <tool", "Hello <b> world <tool");
  expect(kHermes, kFree, " \n two  lines \n ", " \n two  lines \n ");
  expect(kHermes, kFree, "<<tool_call", "<<tool_call");
}

TEST(ToolReader, CallsAreTakenOutOfTheText) {
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, {}]}}\n</tool_call>";
  expect(kHermes, kFree, add, "add({\"a\": [1, {}]})");
  expect(kHermes, kForced, add, "add({\"a\": [1, {}]})");
  expect(kHermes, kFree, "I add.\n\n" + add + "\n" + add + "\n",
         "I add.|add({\"a\": [1, {}]})|add({\"a\": [1, {}]})");
  expect(kHermes, kForced, "I add. " + add + "\n" + add,
         "I add.|add({\"a\": [1, {}]})|add({\"a\": [1, {}]})");
  expect(kHermes, kFree, add + " Done.", "add({\"a\": [1, {}]})| Done.");
}

TEST(ToolReader, WhiteSpaceBetweenThePartsMayBeAny) {
  expect(kHermes, kFree, "<tool_call>{\"name\":\"add\",\n\"arguments\":{}}</tool_call>", "add({})");
  expect(mistral(), kFree,
         "[TOOL_CALLS][{\"name\":\"add\",\"arguments\":{}},\n{\"name\":\"stop\"}]",
         "add({})|stop({})");
}

TEST(ToolReader, StringsMayHoldWhatLooksLikeTheEnd) {
  const std::string text =
      R"(<tool_call>{"name": "add", "arguments": {"a": "}</tool_call>\"\\", "b": "\u007d"}}</tool_call>)";
  expect(kHermes, kForced, text, R"(add({"a": "}</tool_call>\"\\", "b": "\u007d"}))");
  expect(kHermes, kFree, text, R"(add({"a": "}</tool_call>\"\\", "b": "\u007d"}))");
}

TEST(ToolReader, ArgumentsMayComeFirstOrBeATextOfThemselves) {
  expect(kHermes, kFree, R"(<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>)",
         R"(add({"a": 1}))");
  expect(kHermes, kFree, R"(<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>)",
         R"(add({"a": 1}))");
}

TEST(ToolReader, ArgumentsAreSentAsTheyWereWritten) {
  const std::string arguments =
      R"({"a": 123456789012345678901234, "b":18446744073709551615,"c" : [-0.50, 1E2], "\"": "99999999999999999999\\"})";
  for (const auto kind : {kFree, kForced})
    expect(kHermes, kind,
           R"(<tool_call>{"name": "add", "arguments": )" + arguments + "}</tool_call>",
           "add(" + arguments + ")");
  expect(kHermes, kFree,
         R"(<tool_call>{"parameters": {"name": {"arguments": 1}} , "name": "add"}</tool_call>)",
         R"(add({"name": {"arguments": 1}}))");
  expect(kHermes, kFree, R"(<tool_call>{"name": "add", "argum\u0065nts": {"a": 1}}</tool_call>)",
         R"(add({"a":1}))");
  const char* const no_number =
      R"(<tool_call>{"name": "add", "arguments": {"a": 012345678901234567890}}</tool_call>)";
  expect(kHermes, kFree, no_number, no_number);
}

TEST(ToolReader, WhatIsNoCallIsContent) {
  for (const char* text :
       {"<tool_call>", "<tool_call>x", "<tool_call>\n{\"name\": \"add\"",
        "<tool_call>{}</tool_call>",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": 1}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {]}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1,}}</tool_call>"})
    for (const char* before : {"", "a \n ", " \n"})
      expect(kHermes, kFree, std::string(before) + text, std::string(before) + text);
  expect(kHermes, kFree, "Wrap it in a <tool_call> tag.", "Wrap it in a <tool_call> tag.");
  expect(kHermes, kForced, R"({"x": "a <tool_call> b"})", R"({"x": "a <tool_call> b"})");
}

TEST(ToolReader, ACallBehindABrokenOneIsFound) {
  const std::string good = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
  expect(kHermes, kFree, "<tool_call>{\"a\" " + good, "<tool_call>{\"a\"|add({})");
  expect(kHermes, kFree, "<tool_call>{]" + good, "<tool_call>{]|add({})");
  expect(kHermes, kFree, "<tool_call>" + good, "<tool_call>|add({})");
}

TEST(ToolReader, ACallThatLostItsEndIsACall) {
  expect(kHermes, kFree, R"(<tool_call>{"name": "add", "arguments": {}})", "add({})");
  expect(kHermes, kFree, R"(<tool_call>{"name": "add", "arguments": {}} so.)", "add({})| so.");
}

TEST(ToolReader, ForcedArgumentsThatWereCutAreSentAsFarAsTheyCame) {
  expect(kHermes, kForced, R"(<tool_call>{"name": "add", "arguments": {"a": "x)",
         R"(add({"a": "x))");
  // The head of one that was demanded is nothing that a client could use; behind a text it is content.
  expect(kHermes, kForced, R"(<tool_call>{"name": "ad)", "");
  expect(kHermes, kForced, R"(So <tool_call>{"name": "ad)", R"(So <tool_call>{"name": "ad)");
}

TEST(ToolReader, ForcedTextThatNoGrammarWroteIsContent) {
  // A beginning without a key, behind a call whose keys lay further on.
  const std::string call = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
  expect(kHermes, kForced, call + "<tool_call>{:}", "add({})|<tool_call>{:}");
}

TEST(ToolReader, ListsOfCalls) {
  const std::string text =
      R"(Well. [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "stop", "arguments": {}, "id": "123456789"}])";
  expect(mistral(), kFree, text, R"(Well.|add({"a": 1})|stop({}))");
  const std::string forced =
      R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "stop", "arguments": {}}])";
  expect(mistral(), kForced, forced, R"(add({"a": 1})|stop({}))");
}

TEST(ToolReader, BareNames) {
  const std::string text =
      "Hm.<calls><call>function<sep>add\n```json\n{\"a\": 1}\n```</call>\n<call>function<sep>stop\n"
      "```json\n{}\n```</call></calls>";
  expect(bare(), kFree, text, "Hm.|add({\"a\": 1})|stop({})");
  expect(bare(), kForced, text.substr(3), "add({\"a\": 1})|stop({})");
  expect(bare(), kFree, "<calls><call>function<sep>none\n```json\n{}\n```</call></calls>",
         "<calls><call>function<sep>none\n```json\n{}\n```</call></calls>");
}

TEST(ToolReader, ArgumentsGoOutWhileTheyAreForced) {
  ToolReader reader(kHermes, {"add"}, kForced);
  std::vector<AnswerPiece> pieces;
  reader.push("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":", pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "add");
  EXPECT_EQ(pieces[1].text, "{\"a\":");
  pieces.clear();
  reader.push(" 1", pieces);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].text, " 1");
}

TEST(ToolReader, WhiteSpaceWithoutEndGoesOutInTime) {
  // Each byte once: a pass over all of it for each byte would be 10^12 steps.
  ToolReader reader(kHermes, {"add"}, kFree);
  std::vector<AnswerPiece> pieces;
  size_t said = 0, events = 0;
  for (int i = 0; i < 1000; ++i) {
    pieces.clear();
    reader.push(std::string(1000, i % 2 == 0 ? ' ' : '\n'), pieces);
    events += pieces.size();
    for (const AnswerPiece& piece : pieces) said += piece.text.size();
  }
  EXPECT_EQ(events, 1000u) << "no client waits for the end";
  pieces.clear();
  reader.push("<tool_call>{\"name\": \"add\"}</tool_call>", pieces);
  EXPECT_EQ(reader.num_calls(), 1);
  EXPECT_GT(said, 999'700u);
}

TEST(ToolReader, ItSaysWhetherTheLastCallIsWhole) {
  const auto is_cut = [](ToolReader::Text kind, const char* text) {
    ToolReader reader(kHermes, {"add"}, kind);
    std::vector<AnswerPiece> pieces;
    reader.push(text, pieces);
    reader.finish(pieces);
    return reader.is_cut();
  };
  EXPECT_TRUE(is_cut(kForced, R"(<tool_call>{"name": "add", "arguments": {"a": 1)"));
  EXPECT_TRUE(is_cut(kForced, R"(<tool_call>{"name": "add", "arguments": {"a": 1})"));
  EXPECT_FALSE(is_cut(kForced, R"(<tool_call>{"name": "add", "arguments": {"a": 1}})"));
  EXPECT_FALSE(is_cut(kFree, R"(<tool_call>{"name": "add", "arguments": {"a": 1)"));
  EXPECT_FALSE(is_cut(kFree, "no call"));
}

TEST(ToolReader, ManyBrokenCallsEndInTime) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<tool_call>{\"a\": \"";
  std::string said;
  ToolReader reader(kHermes, {"add"}, kFree);
  std::vector<AnswerPiece> pieces;
  reader.push(text, pieces);
  reader.finish(pieces);
  for (const AnswerPiece& piece : pieces) said += piece.text;
  EXPECT_EQ(said, text);
}

}  // namespace
}  // namespace switchyard::serve
