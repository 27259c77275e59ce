// SPDX-License-Identifier: Apache-2.0
#include "serve/call.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "serve/fields.h"

namespace switchyard::serve {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxLogprobs = 20;
constexpr size_t kMaxBiases = 1024;
int depth_of(const Json& json) {
  int deepest = 0;
  if (json.is_array())
    for (const Json& item : json.as_array()) deepest = std::max(deepest, depth_of(item));
  if (json.is_object())
    for (const auto& [name, value] : json.as_object()) deepest = std::max(deepest, depth_of(value));
  return json.is_array() || json.is_object() ? deepest + 1 : 0;
}

/// A string, an array of strings, an array of token ids, or an array of such arrays.
std::optional<ApiError> parse_prompts(const Json& json, std::vector<Request>& prompts) {
  if (json.is_string()) {
    prompts.emplace_back().prompt = json.as_string();
    return check_text(json.as_string(), "prompt");
  }
  if (!json.is_array() || json.as_array().empty())
    return refuse_field("prompt", "invalid_value",
                        "prompt is {}, expected a string, strings, or token ids", json_text(json));
  const Json::Array& items = json.as_array();
  if (items[0].is_number())
    return read_token_ids(json, "prompt", prompts.emplace_back().prompt_tokens);
  if (items.size() > kMaxPrompts)
    return refuse_field("prompt", "invalid_value", "prompt holds {} prompts, expected at most {}",
                        items.size(), kMaxPrompts);
  for (const Json& item : items) {
    std::optional<ApiError> error;
    if (item.is_string()) {
      error = check_text(item.as_string(), "prompt");
      prompts.emplace_back().prompt = item.as_string();
    } else if (item.is_array()) {
      error = read_token_ids(item, "prompt", prompts.emplace_back().prompt_tokens);
    } else {
      error =
          refuse_field("prompt", "invalid_value",
                       "prompt holds {}, expected strings or arrays of token ids", json_text(item));
    }
    if (error) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> parse_input(const Json& body, UnknownFields unknown, Call& call) {
  const char* name = call.endpoint == Endpoint::chat ? "messages" : "prompt";
  const Json* input = body.find(name);
  if (input == nullptr || input->is_null())
    return refuse_field(name, "missing_field", "{} is missing", name);
  if (call.endpoint == Endpoint::completions) return parse_prompts(*input, call.prompts);
  return parse_messages(*input, unknown, call.prompts.emplace_back().messages);
}

/// {"token id": bias}
void read_logit_bias(Fields& fields, std::vector<TokenBias>& biases) {
  const char* const field = "logit_bias";
  const Json* const given = fields.find(field);
  if (given == nullptr) return;
  if (!given->is_object() || given->as_object().size() > kMaxBiases)
    return fields.refuse(refuse_field(
        field, "invalid_value", "logit_bias is {}, expected an object of at most {} token ids",
        json_text(*given), kMaxBiases));
  for (const auto& [name, value] : given->as_object()) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error != std::errc() || end != name.data() + name.size() || token < 0 ||
        name != std::to_string(token))
      return fields.refuse(refuse_field(
          field, "invalid_value", "logit_bias has the key \"{}\", expected a token id", name));
    if (!value.is_number() || !(std::abs(value.as_double()) <= 100))
      return fields.refuse(refuse_field(field, "invalid_value",
                                        "logit_bias of {} is {}, expected a number in [-100, 100]",
                                        name, json_text(value)));
    biases.push_back({token, static_cast<float>(value.as_double())});
  }
}

void read_sampling(Fields& fields, SamplingParams& sampling) {
  fields.number("temperature", 0, 2, sampling.temperature);
  fields.number("top_p", 0, 1, sampling.top_p);
  fields.integer("top_k", -1, kMaxInt, sampling.top_k);
  if (sampling.top_k < 0) sampling.top_k = 0;  // the field's other name for "all"
  fields.number("min_p", 0, 1, sampling.min_p);
  fields.number("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  fields.number("repetition_penalty", 0, 100, sampling.repetition_penalty);
  fields.seed("seed", sampling.seed);
  fields.strings("stop", kMaxStops, sampling.stop);
  fields.token_ids("stop_token_ids", 1024, sampling.stop_token_ids);
  fields.flag("ignore_eos", sampling.ignore_eos);
  fields.integer("min_tokens", 0, kMaxInt, sampling.min_tokens);
  fields.flag("include_stop_str_in_output", sampling.include_stop);
  fields.flag("skip_special_tokens", sampling.skip_special_tokens);
  read_logit_bias(fields, sampling.logit_bias);
}

/// Chat: true, and top_logprobs of 0 to 20. Completions: the number itself.
void read_logprobs(Fields& fields, Endpoint endpoint, SamplingParams& sampling) {
  int most = -1;
  if (endpoint == Endpoint::completions) {
    const Json* const given = fields.find("logprobs");
    if (given != nullptr && given->is_bool() && !given->as_bool()) return;
    fields.integer("logprobs", 0, kMaxLogprobs, most);
  } else {
    bool wanted = false;
    int top = 0;
    fields.flag("logprobs", wanted);
    fields.integer("top_logprobs", 0, kMaxLogprobs, top);
    if (!wanted && top > 0)
      fields.refuse(refuse_field("top_logprobs", "invalid_value",
                                 "top_logprobs is {}, which goes with logprobs: true", top));
    if (wanted) most = top;
  }
  if (most >= 0) sampling.logprobs = most;
}

void read_lengths(Fields& fields, Call& call) {
  int most = 0;
  const char* name =
      fields.find("max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
  fields.integer(name, 1, kMaxInt, most);
  if (most > 0) call.max_tokens = most;
}

void read_stream_options(Fields& fields, Call& call) {
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!call.stream || !options->is_object())
    return fields.refuse(refuse_field("stream_options", "invalid_value",
                                      "stream_options is an object that goes with stream: true"));
  Fields inner(*options);
  inner.flag("include_usage", call.include_usage);
  inner.flag("continuous_usage_stats", call.continuous_usage);
  bool ignored = false;  // obfuscation would only add noise to the events
  inner.flag("include_obfuscation", ignored);
  if (auto error = inner.error()) {
    error->param = "stream_options." + error->param;
    fields.refuse(*std::move(error));
  }
}

/// {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}. The engine compiles the schema before
/// the call is queued, so what cannot be kept is refused and never dropped.
void read_response_format(Fields& fields, OutputConstraint& constraint) {
  const char* const field = "response_format";
  const Json* format = fields.find(field);
  if (format == nullptr) return;
  const Json* type = format->find("type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  if (name == "text") return;
  if (name == "json_object") {
    constraint.kind = OutputConstraint::Kind::json_object;
    return;
  }
  if (name != "json_schema")
    return fields.refuse(refuse_field(field, "invalid_value",
                                      "response_format is {}, expected an object of type text, "
                                      "json_object or json_schema",
                                      json_text(*format)));
  const Json* inner = format->find("json_schema");
  const Json* schema = inner == nullptr ? nullptr : inner->find("schema");
  if (schema == nullptr || schema->is_null())
    return fields.refuse(refuse_field("response_format.json_schema.schema", "missing_field",
                                      "response_format.json_schema.schema is missing"));
  constraint.kind = OutputConstraint::Kind::json_schema;
  JsonWriter(constraint.schema).value(*schema);
}

/// What SamplingParams::check() says begins with the name of the field.
std::optional<ApiError> check_sampling(const SamplingParams& sampling) {
  const Status status = sampling.check();
  if (status.ok()) return std::nullopt;
  ApiError error = api_error(status.error());
  error.param = error.message.substr(0, error.message.find_first_of(" ["));
  return error;
}

}  // namespace

std::optional<ApiError> parse_body(std::string_view body, Json& json) {
  auto parsed = parse_json(body, "body");
  if (!parsed.ok()) {
    ApiError error = api_error(parsed.error());
    if (error.status == 400) error.code = "invalid_json";
    return error;
  }
  if (!parsed->is_object())
    return ApiError{400, "invalid_json",
                    fmt::format("body: expected an object, found {}", parsed->kind_name()), ""};
  if (depth_of(*parsed) > kMaxBodyDepth)
    return ApiError{400, "invalid_json",
                    fmt::format("body: nested deeper than {} levels", kMaxBodyDepth), ""};
  json = *std::move(parsed);
  return std::nullopt;
}

std::optional<ApiError> parse_call(std::string_view body, Endpoint endpoint,
                                   const SamplingParams& defaults, UnknownFields unknown,
                                   Call& call) {
  call.endpoint = endpoint;
  Json json;
  if (auto error = parse_body(body, json)) return error;
  if (auto error = check_field_names(json, endpoint, unknown)) return error;
  Fields fields(json);
  SamplingParams sampling = defaults;
  fields.text("model", call.model);
  fields.integer("n", 1, kMaxChoices, call.n);
  fields.flag("stream", call.stream);
  fields.flag("moe_stats", call.moe_stats);
  read_stream_options(fields, call);
  read_lengths(fields, call);
  read_sampling(fields, sampling);
  read_logprobs(fields, endpoint, sampling);
  fields.flag("return_token_ids", call.return_token_ids);
  Request terms;
  fields.integer("priority", -1000, 1000, terms.priority);
  fields.text("cache_salt", terms.cache_salt);
  fields.flag("cache_prompt", terms.reuse_prefix);
  read_response_format(fields, terms.constraint);
  if (endpoint == Endpoint::chat) {
    read_tools(fields, call.tools);
    read_chat_options(fields, terms.chat, call.reasoning_effort);
    if (call.tools.is_on()) terms.chat.tools = call.tools.json;
  }
  if (fields.error()) return fields.error();
  // What the endpoint's default will be is not known yet; the check that counts is the engine's.
  sampling.max_tokens = call.max_tokens.value_or(kMaxInt);
  if (auto error = check_sampling(sampling)) return error;
  if (auto error = parse_input(json, unknown, call)) return error;
  if (terms.chat.continue_final_message)
    if (auto error = check_continued(call.prompts.front().messages)) return error;
  for (Request& request : call.prompts) {
    request.sampling = sampling;
    request.priority = terms.priority;
    request.constraint = terms.constraint;
    request.chat = terms.chat;
    request.cache_salt = terms.cache_salt;
    request.reuse_prefix = terms.reuse_prefix;
    request.moe_stats = call.moe_stats;
  }
  return std::nullopt;
}

}  // namespace switchyard::serve
