// SPDX-License-Identifier: Apache-2.0
#include "serve/reply_json.h"

#include <algorithm>

#include "serve/logprobs_json.h"

namespace switchyard::serve {
namespace {

void begin(JsonWriter& json, const ReplyFrame& frame, const char* object) {
  json.begin_object().field("id", frame.id).field("object", object);
  json.field("created", frame.created).field("model", frame.model);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.field("cached_tokens", usage.cached_tokens).end_object();
  json.end_object();
}

void write_finish(JsonWriter& json, FinishReason finish, bool called) {
  json.key("finish_reason");
  finish == FinishReason::none ? json.null() : json.string(finish_name(finish, called));
}

void write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids) {
  json.key(name).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

void write_logprobs(JsonWriter& json, const ReplyFrame& frame, bool reported,
                    std::span<const TokenLogprobs> tokens, int64_t text_offset) {
  json.key("logprobs");
  if (!reported)
    json.null();
  else if (frame.endpoint == Endpoint::chat)
    write_chat_logprobs(json, tokens, frame.token_bytes);
  else
    write_completion_logprobs(json, tokens, frame.token_bytes, text_offset);
}

/// A whole call; in a stream its id, type and name once, and arguments in pieces.
void write_call(JsonWriter& json, int index, std::string_view id, std::string_view name,
                std::string_view arguments) {
  json.begin_object();
  if (index >= 0) json.field("index", index);
  if (!id.empty()) json.field("id", id).field("type", "function");
  json.key("function").begin_object();
  if (!id.empty()) json.field("name", name);
  json.field("arguments", arguments).end_object().end_object();
}

/// Experts that this request touched, and how unevenly its picks lay: per layer, then mean and maximum.
void write_moe(JsonWriter& json, const RequestMoe& moe) {
  double touched = 0, imbalance = 0, worst = 0;
  int layers = 0;
  for (const auto& picks : moe.picks) {
    uint64_t sum = 0, hottest = 0, used = 0;
    for (const uint32_t count : picks) {
      sum += count;
      hottest = std::max<uint64_t>(hottest, count);
      used += count > 0;
    }
    if (sum == 0) continue;
    ++layers;
    const double of_layer =
        static_cast<double>(hottest) * static_cast<double>(picks.size()) / static_cast<double>(sum);
    touched += static_cast<double>(used);
    imbalance += of_layer;
    worst = std::max(worst, of_layer);
  }
  const double over = std::max(layers, 1);
  json.key("moe_stats").begin_object().field("layers", layers);
  json.field("experts_touched_mean", touched / over);
  json.field("imbalance_mean", imbalance / over).field("imbalance_max", worst).end_object();
}

void write_message(JsonWriter& json, const Choice& choice) {
  json.key("message").begin_object().field("role", "assistant").key("content");
  choice.calls.empty() || !choice.text.empty() ? json.string(choice.text) : json.null();
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCall& call : choice.calls)
      write_call(json, -1, call.id, call.name, call.arguments);
    json.end_array();
  }
  json.end_object();
}

void write_choice(JsonWriter& json, const ReplyFrame& frame, const Choice& choice, int index) {
  json.begin_object().field("index", index);
  if (frame.endpoint == Endpoint::chat)
    write_message(json, choice);
  else
    json.field("text", choice.text);
  write_logprobs(json, frame, choice.reports_logprobs, choice.logprobs, 0);
  write_finish(json, choice.finish, !choice.calls.empty() && !choice.is_cut);
  if (frame.token_ids) {
    write_ids(json, "prompt_token_ids", choice.prompt_tokens);
    write_ids(json, "token_ids", choice.tokens);
  }
  if (choice.moe) write_moe(json, *choice.moe);
  json.end_object();
}

void write_message_delta(JsonWriter& json, const Delta& delta) {
  json.key("delta").begin_object();
  if (delta.role) json.field("role", "assistant");
  if (delta.null_content)
    json.key("content").null();
  else if (delta.role || !delta.text.empty())
    json.field("content", delta.text);
  if (delta.call >= 0) {
    json.key("tool_calls").begin_array();
    write_call(json, delta.call, delta.call_id, delta.name, delta.arguments);
    json.end_array();
  }
  json.end_object();
}

void write_delta(JsonWriter& json, const ReplyFrame& frame, const Delta& delta) {
  json.begin_object().field("index", delta.index);
  if (frame.endpoint == Endpoint::chat)
    write_message_delta(json, delta);
  else
    json.field("text", delta.text);
  write_logprobs(json, frame, delta.reports_logprobs, delta.logprobs, delta.text_offset);
  write_finish(json, delta.finish, delta.called);
  if (frame.token_ids) {
    if (!delta.prompt_tokens.empty()) write_ids(json, "prompt_token_ids", delta.prompt_tokens);
    write_ids(json, "token_ids", delta.tokens);
  }
  if (delta.moe != nullptr) write_moe(json, *delta.moe);
  json.end_object();
}

const char* chunk_object(const ReplyFrame& frame) {
  return frame.endpoint == Endpoint::chat ? "chat.completion.chunk" : "text_completion";
}

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace

std::string_view finish_name(FinishReason finish, bool called) {
  if (finish == FinishReason::stop && called) return "tool_calls";
  return finish_reason_name(finish);
}

std::string whole_json(const ReplyFrame& frame, std::span<const Choice> choices,
                       const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  begin(json, frame, frame.endpoint == Endpoint::chat ? "chat.completion" : "text_completion");
  json.key("choices").begin_array();
  for (size_t i = 0; i < choices.size(); ++i)
    write_choice(json, frame, choices[i], static_cast<int>(i));
  json.end_array();
  write_usage(json, usage);
  json.end_object();
  return out;
}

std::string chunk_event(const ReplyFrame& frame, const Delta& delta, const Usage* usage) {
  std::string out;
  JsonWriter json(out);
  begin(json, frame, chunk_object(frame));
  json.key("choices").begin_array();
  write_delta(json, frame, delta);
  json.end_array();
  if (usage != nullptr) write_usage(json, *usage);
  json.end_object();
  return event(out);
}

std::string usage_event(const ReplyFrame& frame, const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  begin(json, frame, chunk_object(frame));
  json.key("choices").begin_array().end_array();
  write_usage(json, usage);
  json.end_object();
  return event(out);
}

std::string error_event(const ApiError& error) { return event(error_json(error)); }

}  // namespace switchyard::serve
