// SPDX-License-Identifier: Apache-2.0
// Failures of other engines in the field that lie in texts and templates, each named by class and number
// (docs/field_cases.md). Expected texts of templates are those of Jinja2 3.1.6.
#include <ctime>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "text/chat.h"
#include "text/tiny.h"

namespace switchyard::text {
namespace {

Result<std::optional<ChatTemplate>> open_source(const std::string& source,
                                                const std::string& config = "{}") {
  std::string folder =
      (std::filesystem::temp_directory_path() / "switchyard_field_XXXXXX").string();
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  EXPECT_TRUE(write_file_atomic(folder + "/chat_template.jinja", source).ok());
  EXPECT_TRUE(write_file_atomic(folder + "/tokenizer_config.json", config).ok());
  auto opened = ChatTemplate::open(folder);
  std::filesystem::remove_all(folder);
  return opened;
}

std::string rendered(const std::string& source, const std::string& content) {
  const auto opened = open_source(source);
  if (!opened.ok()) return "open: " + opened.error().message;
  const auto text = (*opened)->render(std::vector<ChatMessage>{{"user", content}});
  return text.ok() ? *text : "render: " + text.error().message;
}

/// Eight bytes of two emoji and a line end, as tokens of one byte each.
TEST(FieldFailures, Text1ByteFallbackInPieces) {
  Tiny tiny;
  tiny.model =
      R"({"type":"BPE","byte_fallback":true,"vocab":{"a":0,"<0xF0>":1,"<0x9F>":2,"<0x98>":3,"<0x80>":4,"<0x81>":5,"<0xE6>":6,"<0xBC>":7,"<0xA2>":8},"merges":[]})";
  tiny.decoder = R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})";
  const auto tokenizer = made(tiny);
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 6, 7, 8, 1, 2, 3, 5, 0};
  const std::string text =
      "a\xF0\x9F\x98\x80\xE6\xBC\xA2\xF0\x9F\x98\x81"
      "a";
  EXPECT_EQ(tokenizer->decode(ids, {}), text);
  const auto decoding = tokenizer->start_decoding({});
  std::string streamed;
  for (const int32_t id : ids) {
    std::string piece;
    decoding->push(id, piece);
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos) << "half a character went out";
    streamed += piece;
  }
  decoding->finish(streamed);
  EXPECT_EQ(streamed, text);
}

TEST(FieldFailures, Text3OneBos) {
  Tiny tiny;
  tiny.added =
      R"([{"id":5,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}])";
  tiny.post_processor =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[5]}}})";
  const auto tokenizer = made(tiny);
  EXPECT_EQ(encode(*tokenizer, "ab"), (Ids{5, 3})) << "the tokenizer adds it to a plain prompt";
  const auto chat =
      *open_source("{{ bos_token }}{{ messages[0].content }}", R"({"bos_token":"<s>"})");
  EXPECT_EQ(chat->encode(std::vector<ChatMessage>{{"user", "ab"}}, {}, *tokenizer).value(),
            (Ids{5, 3}));
}

TEST(FieldFailures, Template1StrftimeNowOrARefusal) {
  char year[8];
  const std::time_t now = std::time(nullptr);
  std::strftime(year, sizeof year, "%Y", std::localtime(&now));
  EXPECT_EQ(rendered("{{ strftime_now('%Y') }}: {{ messages[0].content }}", "x"),
            std::string(year) + ": x");
  const std::string gpt_oss =
      read_text_file(SWITCHYARD_SOURCE_DIR "/tests/golden/templates/chat/gpt_oss_style.jinja",
                     1 << 20)
          .value();
  EXPECT_NE(rendered(gpt_oss, "Hi").find("Hi"), std::string::npos) << rendered(gpt_oss, "Hi");
  EXPECT_TRUE(rendered("{{ some_other_function('%Y') }}", "x").starts_with("open: "));
}

TEST(FieldFailures, Template2GenerationTags) {
  EXPECT_EQ(rendered("{% for m in messages %}{% generation %}[{{ m.content }}]{% endgeneration %}"
                     "{% endfor %}",
                     "x"),
            "[x]");
}

TEST(FieldFailures, Template3FiltersOfPublishedTemplates) {
  EXPECT_EQ(
      rendered("{%- set parts = messages[0].content.split('</think>') -%}{{ parts[-1] | safe }}|"
               "{{ messages is sequence }}|{{ messages[0].content is sequence }}|"
               "{{ [1,2,3,4] | reject('equalto', 3) | list }}|"
               "{{ ['a','code'] | reject('equalto','code') | join(', ') }}|"
               "{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1) }}",
               "x</think><b>y"),
      "<b>y|True|True|[1, 2, 4]|a|['a', 'b', '', 'c']|['a', 'b']|['a', 'b-c']");
}

}  // namespace
}  // namespace switchyard::text
