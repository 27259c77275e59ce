// SPDX-License-Identifier: Apache-2.0
// What a chat says of tools and of the template. Here it is looked at; whether a schema can be kept, the engine's compiler
// says before the call is queued.
#include <algorithm>
#include <set>

#include "serve/call.h"
#include "serve/fields.h"

namespace switchyard::serve {
namespace {

constexpr size_t kMaxName = 128;
constexpr size_t kMaxParameters = size_t{64} << 10;
constexpr std::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                       "string", "array",   "object"};
constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
/// Variables of a template that are none of a client's.
constexpr std::string_view kReserved[] = {"messages",      "tools",    "add_generation_prompt",
                                          "chat_template", "tokenize", "continue_final_message"};

template <class Range>
bool is_in(const Range& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Names stand in texts that are taken apart again.
bool is_name(const Json* json) {
  if (json == nullptr || !json->is_string()) return false;
  const std::string& name = json->as_string();
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_-.:/").find(c) != std::string_view::npos;
         });
}

/// Wherever a schema says "type", a type that JSON has. `properties` are names of a client's, not keywords.
bool has_known_types(const Json& schema) {
  if (!schema.is_object()) return true;
  for (const auto& [name, value] : schema.as_object()) {
    if (name == "type") {
      const auto known = [](const Json& type) {
        return type.is_string() && is_in(kTypes, type.as_string());
      };
      if (value.is_array() ? !std::all_of(value.as_array().begin(), value.as_array().end(), known)
                           : !known(value))
        return false;
    } else if (name == "properties" || name == "$defs" || name == "definitions") {
      if (!value.is_object()) return false;
      for (const auto& [property, inner] : value.as_object())
        if (!has_known_types(inner)) return false;
    } else if (name == "items" || name == "additionalProperties") {
      if (!has_known_types(value)) return false;
    }
  }
  return true;
}

/// The schema of an object of arguments, as text; without a type it gets one, so that it is no other value.
std::optional<ApiError> read_parameters(const Json* json, const std::string& at,
                                        std::string& text) {
  if (json == nullptr) return std::nullopt;
  const Json* const type = json->find("type");
  const bool is_object = json->is_object() &&
                         (type == nullptr || (type->is_string() && type->as_string() == "object"));
  if (!is_object || !has_known_types(*json))
    return refuse_field(at, "invalid_schema", "{} is {}, expected a JSON Schema of type object", at,
                        json_text(*json));
  Json::Object schema = json->as_object();
  // What it leads to may be no object; beside other keywords it stands in an allOf.
  if (const Json* const ref = json->find("$ref");
      ref != nullptr && json->find("allOf") == nullptr) {
    Json all(Json::Array{Json(Json::Object{{"$ref", *ref}})});
    std::erase_if(schema, [](const Json::Member& member) { return member.first == "$ref"; });
    schema.emplace_back("allOf", std::move(all));
  }
  if (type == nullptr) schema.insert(schema.begin(), {"type", Json("object")});
  JsonWriter(text).value(Json(std::move(schema)));
  if (text.size() > kMaxParameters)
    return refuse_field(at, "invalid_schema", "{} has {} bytes, expected at most {}", at,
                        text.size(), kMaxParameters);
  return std::nullopt;
}

std::optional<ApiError> read_tool(const Json& json, const std::string& at, CallTools::Tool& tool) {
  const Json* const type = json.find("type");
  const Json* const function = json.find("function");
  if (type == nullptr || !type->is_string() || type->as_string() != "function" ||
      function == nullptr || !function->is_object())
    return refuse_field(at, "invalid_value",
                        "{} is {}, expected {{\"type\": \"function\", \"function\": {{...}}}}", at,
                        json_text(json));
  Fields fields(*function);
  const Json* const name = fields.find("name");
  if (!is_name(name))
    return refuse_field(at + ".function.name", "invalid_value",
                        "{}.function.name is {}, expected 1 to {} letters, digits or any of _-.:/",
                        at, name == nullptr ? "missing" : json_text(*name), kMaxName);
  tool.schema.name = name->as_string();
  std::string description;
  fields.text("description", description);
  fields.flag("strict", tool.strict);
  if (auto error = fields.error()) {
    error->param = at + ".function." + error->param;
    return error;
  }
  return read_parameters(fields.find("parameters"), at + ".function.parameters",
                         tool.schema.parameters);
}

std::optional<ApiError> read_tool_list(const Json& json, CallTools& tools) {
  if (!json.is_array())
    return refuse_field("tools", "invalid_value", "tools is {}, expected an array",
                        json_text(json));
  if (json.as_array().size() > kMaxTools)
    return refuse_field("tools", "invalid_value", "tools has {} entries, expected at most {}",
                        json.as_array().size(), kMaxTools);
  std::set<std::string> names;
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    CallTools::Tool& tool = tools.tools.emplace_back();
    if (auto error = read_tool(json.as_array()[i], at, tool)) return error;
    if (!names.insert(tool.schema.name).second)
      return refuse_field(at + ".function.name", "invalid_value",
                          "{}.function.name is \"{}\", which another tool has already", at,
                          tool.schema.name);
  }
  JsonWriter(tools.json).value(json);
  return std::nullopt;
}

std::optional<ApiError> read_choice(const Json* json, CallTools& tools) {
  using Choice = CallTools::Choice;
  const char* const field = "tool_choice";
  tools.choice = tools.tools.empty() ? Choice::none : Choice::automatic;
  if (json == nullptr) return std::nullopt;
  const std::string word = json->is_string() ? json->as_string() : "";
  if (word == "auto") return std::nullopt;
  tools.choice = word == "none"       ? Choice::none
                 : word == "required" ? Choice::required
                                      : Choice::named;
  if (word == "none") return std::nullopt;
  if (word != "required") {
    const Json* const type = json->find("type");
    const Json* const function = json->find("function");
    const Json* const name = function == nullptr ? nullptr : function->find("name");
    const bool other = type != nullptr && json_text(*type) != "\"function\"";
    if (other || name == nullptr || !name->is_string())
      return refuse_field(field, "invalid_value",
                          "tool_choice is {}, expected none, auto, required, or "
                          "{{\"type\": \"function\", \"function\": {{\"name\": ...}}}}",
                          json_text(*json));
    tools.named = name->as_string();
  }
  if (tools.tools.empty())
    return refuse_field(field, "invalid_value", "tool_choice wants a call, but there are no tools");
  if (tools.choice == Choice::named &&
      std::none_of(tools.tools.begin(), tools.tools.end(),
                   [&](const auto& tool) { return tool.schema.name == tools.named; }))
    return refuse_field(field, "invalid_value",
                        "tool_choice names \"{}\", which is none of the tools", tools.named);
  return std::nullopt;
}

}  // namespace

void read_tools(Fields& fields, CallTools& tools) {
  if (const Json* const list = fields.find("tools"))
    if (auto error = read_tool_list(*list, tools)) return fields.refuse(*std::move(error));
  if (auto error = read_choice(fields.find("tool_choice"), tools))
    return fields.refuse(*std::move(error));
  fields.flag("parallel_tool_calls", tools.parallel);
}

void read_chat_options(Fields& fields, ChatOptions& chat, std::string& reasoning_effort) {
  fields.flag("continue_final_message", chat.continue_final_message);
  chat.add_generation_prompt = !chat.continue_final_message;
  fields.flag("add_generation_prompt", chat.add_generation_prompt);
  if (chat.continue_final_message && chat.add_generation_prompt)
    fields.refuse(refuse_field("add_generation_prompt", "invalid_value",
                               "add_generation_prompt and continue_final_message are both true"));
  fields.text("reasoning_effort", reasoning_effort);
  if (!reasoning_effort.empty() && !is_in(kEfforts, reasoning_effort))
    fields.refuse(refuse_field("reasoning_effort", "invalid_value",
                               "reasoning_effort is \"{}\", expected none, minimal, low, medium, "
                               "high or xhigh",
                               reasoning_effort));
  const Json* const given = fields.find("chat_template_kwargs");
  if (given != nullptr && !given->is_object())
    return fields.refuse(refuse_field("chat_template_kwargs", "invalid_value",
                                      "chat_template_kwargs is {}, expected an object",
                                      json_text(*given)));
  Json::Object variables = given == nullptr ? Json::Object() : given->as_object();
  for (const auto& [name, value] : variables)
    if (is_in(kReserved, name) || name.ends_with("_token"))
      return fields.refuse(refuse_field("chat_template_kwargs", "invalid_value",
                                        "chat_template_kwargs sets {}, which is the server's",
                                        name));
  if (!reasoning_effort.empty()) {
    std::erase_if(variables, [](const auto& one) { return one.first == "reasoning_effort"; });
    variables.emplace_back("reasoning_effort", Json(reasoning_effort));
  }
  if (!variables.empty()) JsonWriter(chat.template_variables).value(Json(std::move(variables)));
}

}  // namespace switchyard::serve
