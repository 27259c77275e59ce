// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: a model's own way of writing a conversation, from messages to text and to token ids [T].
//
//   messages -> template -> segments (of the template | of the users) -> tokens
//
// Special tokens come from the template alone: "<|im_end|>" in a message stays plain text. Otherwise the ids are those
// of the whole text in one piece, as the "transformers" library has them. No template is ever guessed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace switchyard::text {

struct ChatMessage {
  std::string role, content;
  std::vector<ChatToolCall> tool_calls = {};  ///< of an assistant
  std::string tool_call_id = {};              ///< of a tool's answer
  std::string name = {};                      ///< of the tool that answers
};

struct ChatRender {
  bool add_generation_prompt = true;    ///< the text ends where the assistant's answer starts
  bool continue_final_message = false;  ///< the text ends where the last message does
  Json tools = {};                      ///< an array as OpenAI's clients send it, or null
  Json variables = {};                  ///< an object: more of what the template may read, or null
};

/// Immutable; one template serves many threads.
class ChatTemplate {
 public:
  /// The template of a model folder: chat_template.jinja, else chat_template of tokenizer_config.json, which may be a
  /// list of which "default" is taken. It is compiled and tried with a short conversation. A folder without one gives
  /// no value. Errors: Code::bad_file for a template that is broken or larger than 256 KiB.
  static Result<std::optional<ChatTemplate>> open(const std::string& model_folder);

  /// Errors: Code::bad_request; what the template says by raise_exception is the whole message.
  Result<std::string> render(std::span<const ChatMessage> messages,
                             const ChatRender& options = {}) const;
  /// The ids of the rendered text; BOS only where the template writes it.
  Result<std::vector<int32_t>> encode(std::span<const ChatMessage> messages,
                                      const ChatRender& options, const Tokenizer& tokenizer) const;

  /// How calls of tools are written, as trying the template has shown. Errors: Code::unsupported when that is not known.
  Result<ToolFormat> tool_format() const;
  /// Whether the template says this name anywhere: a variable that it does not read would change nothing.
  bool mentions(std::string_view name) const;

  /// The file it came from.
  const std::string& source() const noexcept { return source_; }

 private:
  /// What the template does with tools (chat_tools.cpp).
  struct ToolStyle {
    ToolFormat format;
    bool lists_tools = false;     ///< itself; else a text in the system message does
    bool writes_calls = false;    ///< itself; else they are written into the content
    bool text_arguments = false;  ///< it wants them as text, not as an object
    bool null_content = false;    ///< it wants none, not an empty text, beside calls
    std::string tool_role;        ///< of an answer; empty: it has no place for one
  };

  ChatTemplate(Template compiled, std::string text, std::string source, jinja::Dict special_tokens)
      : template_(std::move(compiled)),
        text_(std::move(text)),
        source_(std::move(source)),
        special_tokens_(std::move(special_tokens)) {}

  Result<Value> variables(std::span<const ChatMessage> messages, const ChatRender& options) const;
  Result<Value> message_value(const ChatMessage& message) const;
  Result<Value> calls_value(std::span<const ChatToolCall> calls) const;
  Result<std::vector<Segment>> segments(std::span<const ChatMessage> messages,
                                        const ChatRender& options) const;
  Status probe() const;

  /// Finds out the style; none when it is not known.
  void probe_tools();
  ChatRender probe_options() const;
  Status check_tool_messages(std::span<const ChatMessage> messages) const;
  bool probe_calls(ToolStyle& style) const;
  std::string probe_role() const;
  /// With a list of the tools in the system message, where the template has no place for one.
  std::vector<ChatMessage> with_tool_list(std::span<const ChatMessage> messages,
                                          const Json& tools) const;

  Template template_;
  // "tool_use", for requests with tools: it may write calls and answers in other ways, so it is tried by itself.
  std::shared_ptr<const ChatTemplate> with_tools_;
  bool is_for_tools_ = false;  // this is one: it is never taken without tools
  std::string text_;           // of the template, and of that for tools
  std::string source_;
  jinja::Dict special_tokens_;  // bos_token, eos_token, ...
  std::optional<ToolStyle> style_;
  bool shows_calls_ = true, shows_answers_ = true;  // without a style: in a way of its own
};

}  // namespace switchyard::text
