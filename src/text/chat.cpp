// SPDX-License-Identifier: Apache-2.0
// Implements chat.h: finding the template, and rendering. Tokens are in chat_encode.cpp.
#include "text/chat.h"

#include <algorithm>

#include "base/files.h"
#include "base/json.h"

namespace switchyard::text {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{256} << 10;
constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;

struct Source {
  std::string text;
  std::string file;
};

/// chat_template: a text, or a list of {name, template}.
Result<std::optional<std::string>> named_template(const Json& json, const std::string& file) {
  if (json.is_null()) return std::optional<std::string>();
  if (json.is_string()) return std::optional(json.as_string());
  if (!json.is_array())
    return fail(Code::bad_file, "{}: chat_template: expected a string or a list, found {}", file,
                json.kind_name());
  for (const Json& entry : json.as_array()) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name && name->is_string() && name->as_string() == "default" && text && text->is_string())
      return std::optional(text->as_string());
  }
  return fail(Code::bad_file, "{}: chat_template: the list has no template named \"default\"",
              file);
}

Result<std::optional<Source>> find_source(const std::string& folder, const Json& config,
                                          const std::string& config_file) {
  const std::string file = folder + "/chat_template.jinja";
  if (file_exists(file)) {
    SWITCHYARD_ASSIGN(std::string text, read_text_file(file, kMaxTemplateBytes));
    return std::optional(Source{std::move(text), file});
  }
  const Json* json = config.find("chat_template");
  if (!json) return std::optional<Source>();
  SWITCHYARD_ASSIGN(auto text, named_template(*json, config_file));
  if (!text) return std::optional<Source>();
  if (text->size() > kMaxTemplateBytes)
    return fail(Code::bad_file, "{}: chat_template has {} bytes: at most {} are allowed",
                config_file, text->size(), kMaxTemplateBytes);
  return std::optional(Source{*std::move(text), config_file});
}

/// Members such as bos_token that name a token, as a string or as {"content": ...}. The model's files wrote them, so
/// that they are trusted.
Status add_special_tokens(const Json& config, jinja::Dict& tokens) {
  if (config.kind() != Json::Kind::object) return {};
  for (const auto& [name, json] : config.as_object()) {
    if (!std::string_view(name).ends_with("_token")) continue;
    const Json* content = json.is_string() ? &json : json.find("content");
    if (!content || !content->is_string() || tokens.find(name)) continue;
    SWITCHYARD_TRY(
        tokens.set(Value::string(name, true), Value::string(content->as_string(), true)));
  }
  return {};
}

Result<Json> read_config(const std::string& file) {
  if (!file_exists(file)) return Json();
  return read_json_file(file, kMaxConfigBytes);
}

/// Templates build special tokens from roles ("<|" + role + "|>"), so that the usual ones count as the template's.
bool is_known_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"system",    "user",     "assistant",   "tool",
                                         "developer", "function", "observation", "ipython"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

Error as_bad_file(Error error) {
  error.code = Code::bad_file;
  return error;
}

}  // namespace

Result<std::optional<ChatTemplate>> ChatTemplate::open(const std::string& model_folder) {
  const std::string config_file = model_folder + "/tokenizer_config.json";
  SWITCHYARD_ASSIGN(const Json config, read_config(config_file));
  SWITCHYARD_ASSIGN(auto source, find_source(model_folder, config, config_file));
  if (!source) return std::optional<ChatTemplate>();
  SWITCHYARD_ASSIGN(const Json map, read_config(model_folder + "/special_tokens_map.json"));
  jinja::Dict tokens;
  SWITCHYARD_TRY(add_special_tokens(config, tokens));
  SWITCHYARD_TRY(add_special_tokens(map, tokens));
  auto compiled = Template::compile(source->text, source->file);
  if (!compiled.ok()) return as_bad_file(compiled.error());
  ChatTemplate made(*std::move(compiled), std::move(source->file), std::move(tokens));
  const Status probed = made.probe();
  if (!probed.ok()) return as_bad_file(with_context(probed.error(), "the chat template fails"));
  return std::optional(std::move(made));
}

/// Some templates want a system message, some have no place for one: either conversation will do.
Status ChatTemplate::probe() const {
  const ChatMessage messages[] = {{"system", "Be brief."}, {"user", "Hello"}};
  const auto user = render(std::span(messages).subspan(1));
  if (user.ok() || render(messages).ok()) return {};
  return user.error();
}

Result<Value> ChatTemplate::variables(std::span<const ChatMessage> messages,
                                      const ChatRender& options) const {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    jinja::Dict entry;
    SWITCHYARD_TRY(entry.set(Value::string("role", true),
                             Value::string(message.role, is_known_role(message.role))));
    SWITCHYARD_TRY(
        entry.set(Value::string("content", true), Value::string(message.content, false)));
    list.push_back(Value::dict(std::move(entry)));
  }
  jinja::Dict variables = special_tokens_;
  const auto set = [&](std::string_view name, Value value) {
    return variables.set(Value::string(name, true), std::move(value));
  };
  SWITCHYARD_TRY(set("messages", Value::list(std::move(list))));
  SWITCHYARD_TRY(set("add_generation_prompt", Value(options.add_generation_prompt)));
  // Defined but none, as the reference passes them.
  SWITCHYARD_TRY(set("tools", Value()));
  SWITCHYARD_TRY(set("documents", Value()));
  return Value::dict(std::move(variables));
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatRender& options) const {
  SWITCHYARD_ASSIGN(const Value given, variables(messages, options));
  return template_.render(given);
}

Result<std::vector<int32_t>> ChatTemplate::encode(std::span<const ChatMessage> messages,
                                                  const ChatRender& options,
                                                  const Tokenizer& tokenizer) const {
  SWITCHYARD_ASSIGN(const Value given, variables(messages, options));
  SWITCHYARD_ASSIGN(const std::vector<Segment> segments, template_.render_segments(given));
  // In one piece, since a token may join what the template and a user wrote; only the special ones must not.
  std::string text;
  std::vector<ByteRange> plain;
  for (const Segment& segment : segments) {
    if (!segment.from_template) plain.push_back({text.size(), text.size() + segment.text.size()});
    text += segment.text;
  }
  return tokenizer.encode(text,
                          {.add_special_tokens = false, .parse_special = true, .plain = plain});
}

}  // namespace switchyard::text
