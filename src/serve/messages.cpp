// SPDX-License-Identifier: Apache-2.0
// The messages of a chat: who speaks, what was said, which tools were called and what they answered.
#include <algorithm>
#include <map>
#include <span>

#include "serve/call.h"
#include "serve/fields.h"

namespace switchyard::serve {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
/// Of a message: what is served, and what changes nothing.
constexpr std::string_view kMessageFields[] = {"role", "content", "name", "refusal"};
// They have a meaning that would be lost, unless the role is one that they belong to.
constexpr std::string_view kMeaningful[] = {"tool_calls", "tool_call_id", "function_call", "audio"};
constexpr size_t kMaxCalls = 256;  // of one message

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Json* find(const Json& json, std::string_view name) {
  const Json* const found = json.find(name);
  return found != nullptr && found->is_null() ? nullptr : found;
}

/// Clients send back what they were sent, with lists that are empty.
bool is_empty(const Json& json) {
  return json.is_null() || (json.is_array() && json.as_array().empty());
}

/// A string, or parts of type text.
std::optional<ApiError> parse_content(const Json& json, const std::string& at, std::string& text) {
  if (json.is_string()) {
    text = json.as_string();
    return check_text(text, at);
  }
  if (!json.is_array())
    return refuse_field(at, "invalid_value", "{} is {}, expected a string or an array of parts", at,
                        json_text(json));
  for (const Json& part : json.as_array()) {
    const Json *type = part.find("type"), *piece = part.find("text");
    if (type == nullptr || !type->is_string() || type->as_string() != "text" || piece == nullptr ||
        !piece->is_string())
      return refuse_field(at, "unsupported_parameter",
                          "{} holds {}, but only parts of type text are supported", at,
                          json_text(part));
    text += piece->as_string();
  }
  return check_text(text, at);
}

/// A string that has to be there and says something.
std::optional<ApiError> parse_word(const Json& json, const char* name, const std::string& at,
                                   std::string& word) {
  const Json* const found = find(json, name);
  const std::string where = at + "." + name;
  if (found == nullptr) return refuse_field(where, "missing_field", "{} is missing", where);
  if (!found->is_string() || found->as_string().empty())
    return refuse_field(where, "invalid_value", "{} is {}, expected a string", where,
                        json_text(*found));
  word = found->as_string();
  return check_text(word, where);
}

/// A string that holds a JSON object, or that object itself.
std::optional<ApiError> parse_arguments(const Json* json, const std::string& at,
                                        std::string& arguments) {
  arguments = "{}";
  if (json == nullptr || (json->is_string() && json->as_string().empty())) return std::nullopt;
  if (json->is_string()) {
    const auto inner = parse_json(json->as_string(), at);
    if (inner.ok() && inner->is_object()) {
      arguments = json->as_string();
      return std::nullopt;
    }
  } else if (json->is_object()) {
    arguments.clear();
    JsonWriter(arguments).value(*json);
    return std::nullopt;
  }
  return refuse_field(at, "invalid_value", "{} is {}, expected a string that holds a JSON object",
                      at, json_text(*json));
}

std::optional<ApiError> parse_tool_call(const Json& json, const std::string& at, ToolCall& call) {
  const Json* const function = find(json, "function");
  if (function == nullptr || !function->is_object())
    return refuse_field(at, "invalid_value",
                        "{} is {}, expected an object of type function with id and function", at,
                        json_text(json));
  if (auto error = parse_word(json, "id", at, call.id)) return error;
  if (auto error = parse_word(*function, "name", at + ".function", call.name)) return error;
  return parse_arguments(find(*function, "arguments"), at + ".function.arguments", call.arguments);
}

std::optional<ApiError> parse_tool_calls(const Json& json, const std::string& at,
                                         std::vector<ToolCall>& calls) {
  if (!json.is_array() || json.as_array().size() > kMaxCalls)
    return refuse_field(at, "invalid_value", "{} is {}, expected an array of at most {} calls", at,
                        json_text(json), kMaxCalls);
  for (size_t i = 0; i < json.as_array().size(); ++i)
    if (auto error =
            parse_tool_call(json.as_array()[i], fmt::format("{}[{}]", at, i), calls.emplace_back()))
      return error;
  return std::nullopt;
}

bool belongs_to(std::string_view field, const std::string& role) {
  return (field == "tool_calls" && role == "assistant") ||
         (field == "tool_call_id" && role == "tool");
}

/// Unknown fields are ignored as those of a body are: servers that add reasoning_content get it back from their clients.
bool is_refused(std::string_view field, const std::string& role, UnknownFields unknown) {
  if (is_one_of(kMessageFields, field) || belongs_to(field, role)) return false;
  return is_one_of(kMeaningful, field) || unknown == UnknownFields::refused;
}

std::optional<ApiError> parse_role(const Json& json, const std::string& at, UnknownFields unknown,
                                   Message& message) {
  const Json* role = json.find("role");
  if (role == nullptr || !role->is_string())
    return refuse_field(at + ".role", "missing_field", "{}.role is missing", at);
  if (!is_one_of(kRoles, role->as_string()))
    return refuse_field(at + ".role", "invalid_value",
                        "{}.role is {}, expected system, developer, user, assistant or tool", at,
                        json_text(*role));
  message.role = role->as_string();
  for (const auto& [name, value] : json.as_object())
    if (!is_empty(value) && is_refused(name, message.role, unknown))
      return refuse_field(fmt::format("{}.{}", at, name), "unsupported_parameter",
                          "{}.{} is not supported in a message of role {}", at, name, message.role);
  // A developer's message is what a system message was called before.
  if (message.role == "developer") message.role = "system";
  return std::nullopt;
}

std::optional<ApiError> parse_message(const Json& json, const std::string& at,
                                      UnknownFields unknown, Message& message) {
  if (!json.is_object())
    return refuse_field(at, "invalid_value", "{} is {}, expected an object", at, json_text(json));
  if (auto error = parse_role(json, at, unknown, message)) return error;
  if (const Json* const calls = find(json, "tool_calls"))
    if (auto error = parse_tool_calls(*calls, at + ".tool_calls", message.tool_calls)) return error;
  if (message.role == "tool") {
    if (auto error = parse_word(json, "tool_call_id", at, message.tool_call_id)) return error;
    if (const Json* const name = find(json, "name"))
      if (name->is_string()) message.name = name->as_string();
  }
  const Json* const content = find(json, "content");
  if (content != nullptr) return parse_content(*content, at + ".content", message.content);
  if (!message.tool_calls.empty()) return std::nullopt;
  return refuse_field(at + ".content", "missing_field",
                      "{}.content is missing: every message needs its text", at);
}

/// Answers of tools get the name of what they answer, which some templates write.
void name_answers(std::vector<Message>& messages) {
  std::map<std::string, std::string> names;
  for (Message& message : messages) {
    for (const ToolCall& call : message.tool_calls) names[call.id] = call.name;
    const auto known = names.find(message.tool_call_id);
    if (message.role == "tool" && message.name.empty() && known != names.end())
      message.name = known->second;
  }
}

}  // namespace

std::optional<ApiError> parse_messages(const Json& json, UnknownFields unknown,
                                       std::vector<Message>& messages) {
  if (!json.is_array() || json.as_array().empty())
    return refuse_field("messages", "invalid_value",
                        "messages is {}, expected an array of at least one message",
                        json_text(json));
  if (json.as_array().size() > kMaxMessages)
    return refuse_field("messages", "invalid_value", "messages has {} entries, expected at most {}",
                        json.as_array().size(), kMaxMessages);
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    auto error = parse_message(json.as_array()[i], fmt::format("messages[{}]", i), unknown,
                               messages.emplace_back());
    if (error) return error;
  }
  name_answers(messages);
  return std::nullopt;
}

std::optional<ApiError> check_continued(const std::vector<Message>& messages) {
  if (!messages.empty() && messages.back().role == "assistant" &&
      messages.back().tool_calls.empty())
    return std::nullopt;
  return refuse_field("continue_final_message", "invalid_value",
                      "continue_final_message is true, but the last message is no text of an "
                      "assistant's");
}

}  // namespace switchyard::serve
