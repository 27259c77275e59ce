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
  std::string tool_text = {};  // of the template for requests with tools, where there is one
};

/// Of a list of {name, template}.
std::optional<std::string> template_named(const Json& list, std::string_view wanted) {
  for (const Json& entry : list.as_array()) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name && name->is_string() && name->as_string() == wanted && text && text->is_string())
      return text->as_string();
  }
  return std::nullopt;
}

/// chat_template: a text, or a list of {name, template}.
Result<std::optional<std::string>> named_template(const Json& json, const std::string& file) {
  if (json.is_null()) return std::optional<std::string>();
  if (json.is_string()) return std::optional(json.as_string());
  if (!json.is_array())
    return fail(Code::bad_file, "{}: chat_template: expected a string or a list, found {}", file,
                json.kind_name());
  if (auto found = template_named(json, "default")) return found;
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
  Source found{*std::move(text), config_file};
  if (json->is_array()) found.tool_text = template_named(*json, "tool_use").value_or("");
  if (found.tool_text.size() > kMaxTemplateBytes)
    return fail(Code::bad_file,
                "{}: chat_template \"tool_use\" has {} bytes: at most {} are allowed", config_file,
                found.tool_text.size(), kMaxTemplateBytes);
  return std::optional(std::move(found));
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

/// Behind the last message when that is to be continued, as the reference does it: where the text is cut. The space at its
/// end shows whether the template trims messages.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE_TAG ";

void cut_to(std::vector<Segment>& segments, size_t size) {
  size_t before = 0;
  for (size_t i = 0; i < segments.size(); before += segments[i++].text.size()) {
    if (before + segments[i].text.size() < size) continue;
    segments[i].text.resize(size - before);
    segments.resize(i + 1);
    return;
  }
}

Status cut_at_mark(std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  const std::string_view word = kContinueMark.substr(0, kContinueMark.size() - 1);
  size_t at = text.rfind(word);
  if (at == std::string::npos)
    return fail(
        Code::bad_request,
        "continue_final_message: the chat template does not write the last message as it is");
  if (!std::string_view(text).substr(at).starts_with(kContinueMark))
    at = text.find_last_not_of(" \t\r\n", at == 0 ? 0 : at - 1) + 1;
  cut_to(segments, at);
  return {};
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
  ChatTemplate made(*std::move(compiled), source->text + source->tool_text, source->file,
                    std::move(tokens));
  const Status probed = made.probe();
  if (!probed.ok()) return as_bad_file(with_context(probed.error(), "the chat template fails"));
  if (!source->tool_text.empty()) {
    auto for_tools = Template::compile(source->tool_text, source->file + " (tool_use)");
    if (!for_tools.ok()) return as_bad_file(for_tools.error());
    ChatTemplate second(*std::move(for_tools), made.text_, source->file + " (tool_use)",
                        made.special_tokens_);
    second.is_for_tools_ = true;
    second.probe_tools();
    made.with_tools_ = std::make_shared<const ChatTemplate>(std::move(second));
  }
  made.probe_tools();
  return std::optional(std::move(made));
}

/// Some templates want a system message, some have no place for one: either conversation will do.
Status ChatTemplate::probe() const {
  const ChatMessage messages[] = {{"system", "Be brief."}, {"user", "Hello"}};
  const auto user = render(std::span(messages).subspan(1));
  if (user.ok() || render(messages).ok()) return {};
  return user.error();
}

bool ChatTemplate::mentions(std::string_view name) const {
  return text_.find(name) != std::string::npos;
}

Result<Value> ChatTemplate::variables(std::span<const ChatMessage> messages,
                                      const ChatRender& options) const {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    SWITCHYARD_ASSIGN(Value value, message_value(message));
    list.push_back(std::move(value));
  }
  jinja::Dict variables = special_tokens_;
  const auto set = [&](std::string_view name, Value value) {
    return variables.set(Value::string(name, true), std::move(value));
  };
  if (options.variables.is_object())
    for (const auto& [name, json] : options.variables.as_object()) {
      SWITCHYARD_ASSIGN(Value value, Value::from_json(json));
      SWITCHYARD_TRY(set(name, std::move(value)));
    }
  SWITCHYARD_TRY(set("messages", Value::list(std::move(list))));
  SWITCHYARD_TRY(set("add_generation_prompt", Value(options.add_generation_prompt)));
  // Defined but none, as the reference passes them.
  auto tools = Value::from_json(options.tools);
  if (!tools.ok()) return with_context(tools.error(), "tools");
  SWITCHYARD_TRY(set("tools", *std::move(tools)));
  if (variables.find("documents") == nullptr) SWITCHYARD_TRY(set("documents", Value()));
  return Value::dict(std::move(variables));
}

Result<Value> ChatTemplate::message_value(const ChatMessage& message) const {
  jinja::Dict entry;
  const auto set = [&](std::string_view name, Value value) {
    return entry.set(Value::string(name, true), std::move(value));
  };
  const bool answers = message.role == "tool";
  const std::string& role =
      answers && style_ && !style_->tool_role.empty() ? style_->tool_role : message.role;
  SWITCHYARD_TRY(set("role", Value::string(role, is_known_role(message.role))));
  const bool calls = !message.tool_calls.empty();
  if (calls && style_ && !style_->writes_calls) {
    jinja::Text content(message.content, false);
    content.append(write_calls(style_->format, message.tool_calls));
    SWITCHYARD_TRY(set("content", Value(std::move(content))));
    return Value::dict(std::move(entry));
  }
  const bool null = calls && message.content.empty() && (!style_ || style_->null_content);
  SWITCHYARD_TRY(set("content", null ? Value() : Value::string(message.content, false)));
  if (calls) {
    SWITCHYARD_ASSIGN(Value value, calls_value(message.tool_calls));
    SWITCHYARD_TRY(set("tool_calls", std::move(value)));
  }
  if (answers) SWITCHYARD_TRY(set("tool_call_id", Value::string(message.tool_call_id, false)));
  if (!message.name.empty()) SWITCHYARD_TRY(set("name", Value::string(message.name, false)));
  return Value::dict(std::move(entry));
}

Result<std::vector<Segment>> ChatTemplate::segments(std::span<const ChatMessage> messages,
                                                    const ChatRender& options) const {
  if (with_tools_ && options.tools.is_array()) return with_tools_->segments(messages, options);
  std::vector<ChatMessage> own;  // only where something has to be added
  SWITCHYARD_TRY(check_tool_messages(messages));
  if (options.tools.is_array()) {
    if (!style_) return tool_format().error();
    if (!style_->lists_tools) messages = own = with_tool_list(messages, options.tools);
  }
  if (options.continue_final_message && own.empty()) own.assign(messages.begin(), messages.end());
  if (options.continue_final_message) {
    own.back().content += kContinueMark;
    messages = own;
  }
  SWITCHYARD_ASSIGN(const Value given, variables(messages, options));
  SWITCHYARD_ASSIGN(auto segments, template_.render_segments(given));
  if (options.continue_final_message) SWITCHYARD_TRY(cut_at_mark(segments));
  return segments;
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatRender& options) const {
  SWITCHYARD_ASSIGN(const std::vector<Segment> pieces, segments(messages, options));
  std::string text;
  for (const Segment& segment : pieces) text += segment.text;
  return text;
}

Result<std::vector<int32_t>> ChatTemplate::encode(std::span<const ChatMessage> messages,
                                                  const ChatRender& options,
                                                  const Tokenizer& tokenizer) const {
  SWITCHYARD_ASSIGN(const std::vector<Segment> pieces, segments(messages, options));
  // In one piece, since a token may join what the template and a user wrote; only the special ones must not.
  std::string text;
  std::vector<ByteRange> plain;
  for (const Segment& segment : pieces) {
    if (!segment.from_template) plain.push_back({text.size(), text.size() + segment.text.size()});
    text += segment.text;
  }
  return tokenizer.encode(text,
                          {.add_special_tokens = false, .parse_special = true, .plain = plain});
}

}  // namespace switchyard::text
