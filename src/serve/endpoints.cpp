// SPDX-License-Identifier: Apache-2.0
// The handlers of the routes.
#include <algorithm>
#include <ctime>
#include <utility>

#include "switchyard/version.h"

#include "base/json.h"
#include "serve/arrival.h"
#include "serve/fields.h"
#include "serve/server.h"

namespace switchyard::serve {
namespace {

void write_model(JsonWriter& json, const std::string& name, int64_t created,
                 const ModelSummary& summary) {
  json.begin_object().field("id", name).field("object", "model").field("created", created);
  json.field("owned_by", "switchyard").field("max_model_len", summary.max_model_len);
  json.key("meta").begin_object().field("architecture", summary.architecture);
  json.field("layers", summary.layers).field("moe_layers", summary.moe_layers);
  json.field("experts", summary.experts).field("top_k", summary.top_k);
  json.field("total_parameters", summary.total_parameters);
  json.field("active_parameters", summary.active_parameters);
  json.field("weight_bytes", summary.weight_bytes).field("expert_bytes", summary.expert_bytes);
  json.field("device", summary.device).field("vocab", summary.vocab);
  json.end_object().end_object();
}

/// Messages, and what the template is told beside them.
std::optional<ApiError> parse_chat_input(Fields& fields, const Json& messages, Request& request) {
  CallTools tools;
  std::string effort;
  read_tools(fields, tools);
  read_chat_options(fields, request.chat, effort);
  if (fields.error()) return fields.error();
  if (tools.is_on()) request.chat.tools = tools.json;
  if (auto error = parse_messages(messages, UnknownFields::ignored, request.messages)) return error;
  return request.chat.continue_final_message ? check_continued(request.messages) : std::nullopt;
}

/// What /tokenize is given: messages, prompt, or content, llama.cpp's word for it.
std::optional<ApiError> parse_tokenize(const Json& json, Request& request) {
  Fields fields(json);
  int given = 0;
  for (const char* name : {"messages", "prompt", "content"}) given += fields.find(name) != nullptr;
  if (given > 1)
    return refuse_field("prompt", "invalid_value",
                        "expected one of prompt, messages and content, found {}", given);
  fields.text("content", request.prompt);
  fields.text("prompt", request.prompt);
  if (fields.error()) return fields.error();
  const Json* messages = fields.find("messages");
  if (messages != nullptr) return parse_chat_input(fields, *messages, request);
  if (given == 0)
    return refuse_field("prompt", "missing_field", "expected prompt, messages or content");
  return check_text(request.prompt, "prompt");
}

}  // namespace

void Server::live(Arrival& arrival) {
  if (const auto dead = check_alive()) return answer(arrival, *dead);
  answer(arrival, json_reply(R"({"status":"live"})"));
}

void Server::health(Arrival& arrival) {
  if (check_engine(arrival)) answer(arrival, json_reply(R"({"status":"ready"})"));
}

void Server::version(Arrival& arrival) {
  std::string out;
  JsonWriter(out).begin_object().field("version", kVersion).end_object();
  answer(arrival, json_reply(std::move(out)));
}

void Server::models(Arrival& arrival) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "list").key("data").begin_array();
  for (const std::string& name : options_.served_names)
    write_model(json, name, created_, engine_.load()->summary());
  json.end_array().end_object();
  answer(arrival, json_reply(std::move(out)));
}

void Server::model(Arrival& arrival) {
  const std::string name = arrival.request.path.substr(std::string_view("/v1/models/").size());
  if (const auto error = check_model(name)) return answer(arrival, *error);
  std::string out;
  JsonWriter json(out);
  write_model(json, name, created_, engine_.load()->summary());
  answer(arrival, json_reply(std::move(out)));
}

std::optional<ApiError> Server::check_model(const std::string& name) const {
  const auto& names = options_.served_names;
  if (std::find(names.begin(), names.end(), name) != names.end()) return std::nullopt;
  std::string served;
  for (const std::string& known : names) served += (served.empty() ? "" : ", ") + known;
  return ApiError{404, "model_not_found",
                  fmt::format("no model of that name; this server has: {}", served), "model"};
}

/// For the endpoints about tokens: the model, and names that are known, `own` among them.
std::optional<ApiError> Server::check_fields(const Json& json, Endpoint like,
                                             std::string_view own) const {
  for (const Json::Member& member : json.as_object())
    if (member.first != own)
      if (auto error = check_field_name(member, like, options_.unknown_fields)) return error;
  Fields fields(json);
  std::string model;
  fields.text("model", model);
  if (fields.error() || model.empty()) return fields.error();
  return check_model(model);
}

void Server::tokenize(Arrival& arrival) {
  Json json;
  Request request;
  if (const auto error = parse_body(arrival.request.body, json)) return answer(arrival, *error);
  if (const auto error = parse_tokenize(json, request)) return answer(arrival, *error);
  const Endpoint like = request.messages.empty() ? Endpoint::completions : Endpoint::chat;
  if (const auto error = check_fields(json, like, "content")) return answer(arrival, *error);
  const Engine& engine = *engine_.load();
  const auto tokens = engine.tokenize(request);
  if (!tokens.ok()) {
    ApiError error = api_error(tokens.error());
    error.param = request.messages.empty() ? "prompt" : "messages";
    return answer(arrival, error);
  }
  std::string out;
  JsonWriter writer(out);
  writer.begin_object().key("tokens").begin_array();
  for (const int32_t token : *tokens) writer.integer(token);
  writer.end_array().field("count", static_cast<int64_t>(tokens->size()));
  writer.field("max_model_len", engine.summary().max_model_len).end_object();
  answer(arrival, json_reply(std::move(out)));
}

void Server::detokenize(Arrival& arrival) {
  Json json;
  if (const auto error = parse_body(arrival.request.body, json)) return answer(arrival, *error);
  if (const auto error = check_fields(json, Endpoint::completions, "tokens"))
    return answer(arrival, *error);
  Fields fields(json);
  std::vector<int32_t> tokens;
  if (fields.find("tokens") == nullptr)
    fields.refuse(refuse_field("tokens", "missing_field", "tokens is missing"));
  fields.token_ids("tokens", options_.http.body_bytes, tokens);
  if (fields.error()) return answer(arrival, *fields.error());
  const auto text = engine_.load()->detokenize(tokens);
  if (!text.ok()) {
    ApiError error = api_error(text.error());
    if (error.status == 400) error.param = "tokens";
    return answer(arrival, error);
  }
  std::string out;
  JsonWriter(out).begin_object().field("prompt", *text).field("content", *text).end_object();
  answer(arrival, json_reply(std::move(out)));
}

void Server::complete(Arrival& arrival, Endpoint endpoint) {
  Engine& engine = *engine_.load();
  Call call;
  if (const auto error = parse_call(arrival.request.body, endpoint, engine.default_sampling(),
                                    options_.unknown_fields, call))
    return answer(arrival, *error);
  if (!call.model.empty())
    if (const auto error = check_model(call.model)) return answer(arrival, *error);
  const auto choices = static_cast<int64_t>(call.num_choices());
  if (choices > options_.max_choices)  // waiting would not help
    return answer(arrival, refuse_field("n", "invalid_value",
                                        "n and the prompts make {} choices, expected at most {}",
                                        choices, options_.max_choices));
  auto place = take_place(choices);
  if (place == nullptr)
    return answer(arrival, ApiError{429, "queue_full",
                                    "too many requests are waiting already: try again later", ""});
  // A drain that began since the call was let in may not have counted it.
  if (!check_engine(arrival)) return;
  for (Request& request : call.prompts) request.timeout_s = options_.request_timeout_s;
  const std::string id = new_id();
  ReplyFrame frame{endpoint, (endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-") + id,
                   call.model.empty() ? options_.served_names.front() : call.model,
                   static_cast<int64_t>(std::time(nullptr))};
  frame.token_bytes = [&engine](int32_t token) { return engine.token_bytes(token); };
  frame.token_ids = call.return_token_ids;
  GenerationHooks hooks;
  hooks.place = std::move(place);
  hooks.record = std::shared_ptr<CallRecord>(arrival.record, &arrival.record->call);
  arrival.request.body.clear();
  hooks.on_head = [this, arrival](HttpReply& reply) { add_headers(arrival, reply); };
  hooks.on_disconnect = [this](GenerationHooks::Left left) { count_left(left); };
  const auto generation = std::make_shared<Generation>(engine, std::move(call), std::move(frame),
                                                       arrival.exchange, std::move(hooks));
  if (!remember(generation)) return generation->abort(check_alive().value_or(draining()));
  generation->begin();
}

}  // namespace switchyard::serve
