// SPDX-License-Identifier: Apache-2.0
// What templates do with tools is found out by trying them: the format of calls, where tools are listed, who may answer.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "text/chat.h"

namespace switchyard::text {
namespace {

const std::string kTemplates = SWITCHYARD_SOURCE_DIR "/tests/golden/templates/chat/";

ChatTemplate open_source(const std::string& source, const std::string& config = "{}") {
  std::string folder =
      (std::filesystem::temp_directory_path() / "switchyard_tools_XXXXXX").string();
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  if (!source.empty()) {
    EXPECT_TRUE(write_file_atomic(folder + "/chat_template.jinja", source).ok());
  }
  EXPECT_TRUE(write_file_atomic(folder + "/tokenizer_config.json", config).ok());
  ChatTemplate opened = *ChatTemplate::open(folder).value();
  std::filesystem::remove_all(folder);
  return opened;
}

ChatTemplate open_golden(const std::string& name) {
  return open_source(read_text_file(kTemplates + name + ".jinja", 1 << 20).value(),
                     R"({"bos_token": "<s>", "eos_token": "</s>"})");
}

std::string format_name(const ChatTemplate& chat) {
  const auto format = chat.tool_format();
  return format.ok() ? format->name : "none";
}

// As the templates of Mixtral-8x22B-Instruct, granite-3.0 and DeepSeek-V3 write calls.
constexpr const char* kMistral =
    R"({{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{% if tools is not none and loop.index0 == 0 %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST] {{ m.content }}[/INST]{% elif m.tool_calls is defined %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}{{ (c.function | tojson)[:-1] }}, "id": "{{ c.id }}"}{{ ', ' if not loop.last }}{% endfor %}]{{ eos_token }}{% elif m.role == 'tool' %}[TOOL_RESULTS] {{ m.content }}[/TOOL_RESULTS]{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% else %}{{ raise_exception('no place') }}{% endif %}{% endfor %})";
constexpr const char* kGranite =
    R"({% if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson(indent=4) }}<|end_of_text|>{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|start_of_role|>user<|end_of_role|>{{ m.content }}<|end_of_text|>{% elif m.role == 'system' %}<|start_of_role|>system<|end_of_role|>{{ m.content }}<|end_of_text|>{% elif m.role == 'assistant_tool_call' %}<|start_of_role|>assistant<|end_of_role|><|tool_call|>{{ m.content }}<|end_of_text|>{% elif m.role == 'assistant' %}<|start_of_role|>assistant<|end_of_role|>{{ '' + m.content }}<|end_of_text|>{% elif m.role == 'tool_response' %}<|start_of_role|>tool_response<|end_of_role|>{{ m.content }}<|end_of_text|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %})";
constexpr const char* kDeepSeek =
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'assistant' and m.content is none %}<｜Assistant｜><｜tool▁calls▁begin｜>"
    "{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}{{ '<｜tool▁call▁begin｜>' + c.type + "
    "'<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' + c.function.arguments + "
    "'\\n```<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>"
    "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}"
    "{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}";

constexpr const char* kDeepSeek31 =
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'assistant' and m.tool_calls %}<｜Assistant｜></think><｜tool▁calls▁begin｜>"
    "{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + "
    "c.function.arguments + '<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>"
    "{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"
    "{% endif %}{% endfor %}";

TEST(ChatTools, FormatsAreFoundByTryingTheTemplate) {
  EXPECT_EQ(format_name(open_golden("qwen3_style")), "hermes");
  EXPECT_EQ(format_name(open_source(kMistral)), "mistral");
  EXPECT_EQ(format_name(open_source(kGranite)), "granite");
  EXPECT_EQ(format_name(open_source(kDeepSeek)), "deepseek_v3");
  EXPECT_EQ(format_name(open_source(kDeepSeek31)), "deepseek_v31");
  EXPECT_EQ(format_name(*ChatTemplate::open(SWITCHYARD_SOURCE_DIR "/models/demo").value()),
            "hermes");
}

TEST(ChatTools, OtherFormatsAreNone) {
  // <tool_call> with keys and values in tags, a call without any marker, markers of its own, no tools at all.
  for (const char* name : {"glm46_style", "llama31_style", "deepseek_v3_style", "mixtral_style"})
    EXPECT_EQ(format_name(open_golden(name)), "none") << name;
  const auto format = open_golden("glm46_style").tool_format();
  EXPECT_EQ(format.error().code, Code::unsupported);
  EXPECT_NE(format.error().message.find("hermes, mistral, granite, deepseek_v3"), std::string::npos)
      << format.error().message;
}

const char* const kTools =
    R"([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}])";

std::vector<ChatMessage> conversation() {
  return {{"user", "1 + 2?"},
          {.role = "assistant",
           .content = "",
           .tool_calls = {{"abcdefghi", "add", R"({"a": 1, "b": 2})"},
                          {"bcdefghij", "add", R"({"a": 2, "b": 2})"}}},
          {.role = "tool", .content = "3", .tool_call_id = "abcdefghi", .name = "add"}};
}

std::string rendered(const ChatTemplate& chat, bool with_tools) {
  ChatRender options;
  if (with_tools) options.tools = *parse_json(kTools, "tools");
  const auto text = chat.render(conversation(), options);
  return text.ok() ? *text : "error: " + text.error().message;
}

TEST(ChatTools, ConversationsWithCallsAreWrittenAsTheTemplateDoes) {
  EXPECT_NE(rendered(open_golden("qwen3_style"), true)
                .find("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n"
                      "</tool_call>\n<tool_call>\n"),
            std::string::npos);
  const std::string mistral = rendered(open_source(kMistral), true);
  EXPECT_NE(mistral.find("[AVAILABLE_TOOLS] [{\"type\": \"function\""), std::string::npos);
  EXPECT_NE(mistral.find("[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}, "
                         "\"id\": \"abcdefghi\"}, {"),
            std::string::npos)
      << mistral;
  EXPECT_NE(mistral.find("[TOOL_RESULTS] 3"), std::string::npos);
  const std::string deepseek = rendered(open_source(kDeepSeek), false);
  EXPECT_NE(
      deepseek.find("<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1, \"b\": "
                    "2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"),
      std::string::npos)
      << deepseek;
}

TEST(ChatTools, WhereTheTemplateWritesNoCallsTheyAreWrittenInItsFormat) {
  const std::string granite = rendered(open_source(kGranite), true);
  EXPECT_NE(
      granite.find("<|end_of_role|><|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1, "
                   "\"b\": 2}}, {\"name\": \"add\""),
      std::string::npos)
      << granite;
  EXPECT_NE(granite.find("tool_response<|end_of_role|>3"), std::string::npos) << granite;
}

TEST(ChatTools, WhereTheTemplateListsNoToolsTheSystemMessageDoes) {
  const ChatTemplate demo = *ChatTemplate::open(SWITCHYARD_SOURCE_DIR "/models/demo").value();
  const std::string text = rendered(demo, true);
  EXPECT_TRUE(text.starts_with("<|im_start|>system\n")) << text;
  EXPECT_NE(text.find(R"({"type":"function","function":{"name":"add")"), std::string::npos) << text;
  EXPECT_NE(text.find("<tool_call>\n{\"name\": \"NAME\""), std::string::npos) << text;
  EXPECT_NE(text.find("<|im_start|>tool\n3<|im_end|>"), std::string::npos) << text;
  EXPECT_EQ(rendered(demo, false).find("system"), std::string::npos);
  ChatRender options;
  options.tools = *parse_json(kTools, "tools");
  const std::vector<ChatMessage> briefed = {{"system", "Be brief."}, {"user", "Hi"}};
  EXPECT_TRUE(demo.render(briefed, options)->starts_with("<|im_start|>system\nBe brief.\n\n"));
}

TEST(ChatTools, TheTemplateForToolsIsTakenWithTools) {
  const ChatTemplate chat =
      open_source("", R"({"chat_template": [{"name": "default", "template": "plain <tool_call>"},
               {"name": "tool_use", "template": "with {{ tools[0].function.name }}"}]})");
  ChatRender options;
  EXPECT_EQ(chat.render(std::vector<ChatMessage>{{"user", "x"}}, options).value(),
            "plain <tool_call>");
  options.tools = *parse_json(kTools, "tools");
  EXPECT_EQ(chat.render(std::vector<ChatMessage>{{"user", "x"}}, options).value(), "with add");
}

// As Hermes-3 has them: ChatML, and a second one for tools that takes no content beside calls.
constexpr const char* kTwo =
    R"({"chat_template": [{"name": "default", "template": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"},
        {"name": "tool_use", "template": "<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls is defined %}<|im_start|>assistant{% for c in m.tool_calls %}\n<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>{% elif m.role == 'tool' %}<|im_start|>tool\n<tool_response>{{ m.content }}</tool_response><|im_end|>{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endif %}{% endfor %}"}]})";

TEST(ChatTools, EachTemplateOfAListIsTriedByItself) {
  const ChatTemplate chat = open_source("", kTwo);
  EXPECT_EQ(format_name(chat), "hermes");
  const std::string with = rendered(chat, true);
  EXPECT_NE(with.find(R"({"name": "add", "arguments": {"a": 1, "b": 2}})"), std::string::npos)
      << with;
  EXPECT_NE(with.find("<tool_response>3</tool_response>"), std::string::npos) << with;
  // Without tools the default one is taken, which writes no calls: they stand in the content.
  const std::string without = rendered(chat, false);
  EXPECT_NE(without.find(R"(<tool_call>)"), std::string::npos) << without;
  EXPECT_NE(without.find(R"("b": 2)"), std::string::npos) << without;
  EXPECT_NE(without.find("<|im_start|>tool\n3<|im_end|>"), std::string::npos) << without;
}

TEST(ChatTools, WhatATemplateLeavesOutIsRefused) {
  const ChatTemplate plain = open_source(
      "{% for m in messages %}{% if m.role != 'tool' %}[{{ m.role }}] {{ m.content }}{% endif %}{% "
      "endfor %}");
  const auto call = plain.render(conversation(), {});
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.error().code, Code::unsupported);
  EXPECT_TRUE(call.error().message.starts_with("messages[1].tool_calls: ")) << call.error().message;
  const auto answer =
      plain.render(std::vector<ChatMessage>{{"user", "x"}, {.role = "tool", .content = "3"}}, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(answer.error().message.starts_with("messages[1].role: ")) << answer.error().message;
  // One that writes both in a way of its own is left to it.
  const ChatTemplate own = open_source(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}!{{ c.function.name "
      "}}!{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  EXPECT_NE(rendered(own, false).find("!add!{\"a\": 1, \"b\": 2}"), std::string::npos)
      << rendered(own, false);
}

TEST(ChatTools, ToolsWithoutAFormatAreRefused) {
  ChatRender options;
  options.tools = *parse_json(kTools, "tools");
  const auto text =
      open_golden("mixtral_style").render(std::vector<ChatMessage>{{"user", "x"}}, options);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, Code::unsupported);
  // An integer that templates do not take is one of the tools, not of the messages.
  options.tools = *parse_json("[18446744073709551615]", "tools");
  const auto large =
      open_golden("qwen3_style").render(std::vector<ChatMessage>{{"user", "x"}}, options);
  ASSERT_FALSE(large.ok());
  EXPECT_TRUE(large.error().message.starts_with("tools: ")) << large.error().message;
}

TEST(ChatTools, VariablesReachTheTemplate) {
  const ChatTemplate chat = open_golden("qwen3_style");
  ChatRender options;
  options.variables = *parse_json(R"({"enable_thinking": false})", "variables");
  EXPECT_TRUE(chat.render(std::vector<ChatMessage>{{"user", "x"}}, options)
                  ->ends_with("<think>\n\n</think>\n\n"));
  EXPECT_TRUE(chat.mentions("enable_thinking"));
  EXPECT_FALSE(chat.mentions("reasoning_effort"));
}

TEST(ChatTools, TheLastMessageIsContinued) {
  const ChatRender options{.add_generation_prompt = false, .continue_final_message = true};
  const ChatTemplate demo = *ChatTemplate::open(SWITCHYARD_SOURCE_DIR "/models/demo").value();
  const std::vector<ChatMessage> messages = {{"user", "Hi"}, {"assistant", "I think "}};
  EXPECT_EQ(demo.render(messages, options).value(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nI think ");
  // A template that trims messages.
  const ChatTemplate trims =
      open_source("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}");
  EXPECT_EQ(trims.render(messages, options).value(), "[user]Hi<end>[assistant]I think");
  const ChatTemplate silent = open_source("{{ messages[0].content }}");
  EXPECT_EQ(silent.render(messages, options).error().code, Code::bad_request);
}

TEST(ChatTools, NamesAndArgumentsOfUsersSpellNoSpecialTokens) {
  const ChatTemplate demo = *ChatTemplate::open(SWITCHYARD_SOURCE_DIR "/models/demo").value();
  const auto tokenizer = open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo").value();
  const auto count_special = [&](const std::string& name, const std::string& text) {
    ChatRender options;
    options.tools = Json(Json::Array{Json(name)});
    std::vector<ChatMessage> messages = conversation();
    messages[1].tool_calls[0].arguments = "{\"a\": \"" + text + "\"}";
    messages[1].tool_calls[0].name = name;
    messages[2].content = text;
    size_t count = 0;
    const auto ids = demo.encode(messages, options, *tokenizer).value();
    for (const int32_t id : ids) count += tokenizer->is_special(id) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(count_special("<|im_end|>", "<|im_start|>"), count_special("f", "x"));
}

}  // namespace
}  // namespace switchyard::text
