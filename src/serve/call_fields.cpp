// SPDX-License-Identifier: Apache-2.0
// Which fields are served, which may be left out, and which are refused: the tables.
#include <algorithm>
#include <span>
#include <string_view>

#include "serve/call.h"

namespace switchyard::serve {
namespace {

constexpr std::string_view kServed[] = {"model",
                                        "prompt",
                                        "stream",
                                        "stream_options",
                                        "n",
                                        "max_tokens",
                                        "max_completion_tokens",
                                        "min_tokens",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "seed",
                                        "stop",
                                        "stop_token_ids",
                                        "ignore_eos",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "repetition_penalty",
                                        "moe_stats",
                                        "priority",
                                        "cache_salt",
                                        "cache_prompt",
                                        "response_format",
                                        "logprobs",
                                        "logit_bias",
                                        "include_stop_str_in_output",
                                        "skip_special_tokens",
                                        "return_token_ids"};

/// Of chats alone.
constexpr std::string_view kOfChats[] = {"messages",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "top_logprobs",
                                         "add_generation_prompt",
                                         "continue_final_message",
                                         "chat_template_kwargs",
                                         "reasoning_effort"};

/// Leaving these out changes no answer.
constexpr std::string_view kHarmless[] = {"user",
                                          "metadata",
                                          "store",
                                          "service_tier",
                                          "safety_identifier",
                                          "prompt_cache_key",
                                          "prompt_cache_options",
                                          "prompt_cache_retention",
                                          "verbosity"};

/// Values of fields that are not served, with which nothing would be different.
bool is_false(const Json& json) { return json.is_bool() && !json.as_bool(); }
bool is_true(const Json& json) { return json.is_bool() && json.as_bool(); }
bool is_empty(const Json& json) {
  return (json.is_array() && json.as_array().empty()) ||
         (json.is_object() && json.as_object().empty());
}
bool is_none(const Json& json) { return json.is_string() && json.as_string() == "none"; }
bool is_text_modality(const Json& json) {
  return json.is_array() && json.as_array().size() == 1 && json.as_array()[0].is_string() &&
         json.as_array()[0].as_string() == "text";
}
bool is_one(const Json& json) { return json.is_integer() && json.as_int() == 1; }
/// Of a field of the other endpoint.
bool asks_for_nothing(const Json& json) {
  return is_false(json) || is_empty(json) || is_none(json) ||
         (json.is_integer() && json.as_int() == 0);
}
bool never(const Json&) { return false; }

struct Unserved {
  std::string_view name;
  bool (*changes_nothing)(const Json&);
};

/// Refused by name: dropping them would change what the client gets.
constexpr Unserved kUnserved[] = {
    {"functions", is_empty},
    {"function_call", is_none},
    {"structured_outputs", is_empty},
    {"guided_json", never},
    {"guided_regex", never},
    {"guided_choice", never},
    {"guided_grammar", never},
    {"grammar", never},
    {"json_schema", never},
    {"prompt_logprobs", never},
    {"bad_words", is_empty},
    {"allowed_token_ids", is_empty},
    {"best_of", is_one},
    {"echo", is_false},
    {"suffix", never},
    {"audio", never},
    {"modalities", is_text_modality},
    {"prediction", never},
    {"web_search_options", never},
    {"moderation", never},
    {"use_beam_search", is_false},
    {"chat_template", never},
    {"add_special_tokens", is_true},
    {"truncate_prompt_tokens", never},
};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<ApiError> check_field_name(const Json::Member& member, Endpoint endpoint,
                                         UnknownFields unknown) {
  const std::string& name = member.first;  // no structured binding: Clang 14 cannot capture one
  const Json& value = member.second;
  if (value.is_null() || is_in(kHarmless, name)) return std::nullopt;
  const bool of_chats = is_in(kOfChats, name);
  if (of_chats || is_in(kServed, name)) {
    const bool foreign = endpoint == Endpoint::chat ? name == "prompt" : of_chats;
    if (!foreign || (name != "messages" && asks_for_nothing(value))) return std::nullopt;
    return refuse_field(name, "unsupported_parameter", "{} is no field of this endpoint", name);
  }
  const auto* const unserved = std::find_if(std::begin(kUnserved), std::end(kUnserved),
                                            [&](const Unserved& u) { return u.name == name; });
  if (unserved != std::end(kUnserved)) {
    if (unserved->changes_nothing(value)) return std::nullopt;
    return refuse_field(name, "unsupported_parameter",
                        "{} is not supported by this server; leave it out", name);
  }
  if (unknown == UnknownFields::ignored) return std::nullopt;
  return refuse_field(name, "unsupported_parameter", "{} is not a known field", name);
}

std::optional<ApiError> check_field_names(const Json& body, Endpoint endpoint,
                                          UnknownFields unknown) {
  for (const Json::Member& member : body.as_object())
    if (auto error = check_field_name(member, endpoint, unknown)) return error;
  return std::nullopt;
}

}  // namespace switchyard::serve
