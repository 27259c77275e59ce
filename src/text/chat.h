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

#include "base/result.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

namespace switchyard::text {

struct ChatMessage {
  std::string role, content;
};

struct ChatRender {
  bool add_generation_prompt = true;  ///< the text ends where the assistant's answer starts
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
  /// The same for any sequence of things with a role and a content, with the default options.
  template <class Messages>
  Result<std::vector<int32_t>> encode(const Messages& messages, const Tokenizer& tokenizer) const {
    std::vector<ChatMessage> copies;
    copies.reserve(std::size(messages));
    for (const auto& message : messages) copies.push_back({message.role, message.content});
    return encode(copies, ChatRender{}, tokenizer);
  }

  /// The file it came from.
  const std::string& source() const noexcept { return source_; }

 private:
  ChatTemplate(Template compiled, std::string source, jinja::Dict special_tokens)
      : template_(std::move(compiled)),
        source_(std::move(source)),
        special_tokens_(std::move(special_tokens)) {}

  Result<Value> variables(std::span<const ChatMessage> messages, const ChatRender& options) const;
  Status probe() const;

  Template template_;
  std::string source_;
  jinja::Dict special_tokens_;  // bos_token, eos_token, ...
};

}  // namespace switchyard::text
