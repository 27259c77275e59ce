// SPDX-License-Identifier: Apache-2.0
#include "cli/outputs.h"

#include <algorithm>

#include <fmt/format.h>

namespace switchyard::cli {
namespace {

/// Prompt tokens that took the time of the prefill.
int computed_tokens(const RequestTimings& timings) {
  return timings.prompt_tokens - timings.cached_tokens;
}

double per_second(int count, double seconds) { return seconds > 0 ? count / seconds : 0; }

void write_ids(JsonWriter& json, std::string_view name, const std::vector<int32_t>& ids) {
  json.key(name).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

void write_timings(JsonWriter& json, const RequestTimings& timings) {
  json.key("timings").begin_object();
  json.field("prompt_tokens", timings.prompt_tokens).field("cached_tokens", timings.cached_tokens);
  json.field("output_tokens", timings.output_tokens);
  json.field("queue_s", timings.queue_s).field("prefill_s", timings.prefill_s);
  json.field("decode_s", timings.decode_s);
  json.field("prefill_tokens_per_s", per_second(computed_tokens(timings), timings.prefill_s));
  json.field("decode_tokens_per_s", per_second(timings.output_tokens - 1, timings.decode_s));
  json.end_object();
}

void write_moe(JsonWriter& json, const RequestMoe& moe) {
  json.key("moe").begin_object().key("layers").begin_array();
  for (const std::vector<uint32_t>& picks : moe.picks) {
    uint64_t total = 0, hottest = 0;
    int touched = 0;
    for (const uint32_t count : picks) {
      total += count;
      hottest = std::max<uint64_t>(hottest, count);
      touched += count > 0 ? 1 : 0;
    }
    const double mean =
        static_cast<double>(total) / static_cast<double>(std::max<size_t>(picks.size(), 1));
    json.begin_object().field("touched", touched);
    json.field("imbalance", total > 0 ? static_cast<double>(hottest) / mean : 0.0);
    json.key("picks").begin_array();
    for (const uint32_t count : picks) json.integer(count);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

}  // namespace

void Outputs::push(size_t index, const Event& event) {
  const std::lock_guard lock(mutex_);
  Output& output = outputs_[index];
  output.text += event.text;
  output.tokens.insert(output.tokens.end(), event.tokens.begin(), event.tokens.end());
  if (event.finish != FinishReason::none) output.last = event;
  changed_.notify_one();
}

std::string Outputs::wait_for_text(size_t index, size_t seen) {
  std::unique_lock lock(mutex_);
  const Output& output = outputs_[index];
  changed_.wait(lock, [&] { return output.text.size() > seen || output.last.has_value(); });
  return output.text.substr(seen);
}

bool Outputs::ended(size_t index) const {
  const std::lock_guard lock(mutex_);
  return outputs_[index].last.has_value();
}

void write_output(JsonWriter& json, const Output& output) {
  const Event& last = *output.last;
  json.begin_object();
  write_ids(json, "prompt_ids", last.prompt_tokens);
  write_ids(json, "output_ids", output.tokens);
  json.field("text", output.text);
  json.field("finish_reason", finish_reason_name(last.finish));
  if (last.error)
    json.key("error")
        .begin_object()
        .field("code", code_name(last.error->code))
        .field("message", last.error->message)
        .end_object();
  write_timings(json, last.timings);
  write_moe(json, last.moe);
  json.end_object();
}

std::string timing_text(const Output& output) {
  const RequestTimings& timings = output.last->timings;
  std::string text = fmt::format("{} prompt tokens", timings.prompt_tokens);
  if (timings.cached_tokens > 0) text += fmt::format(" ({} cached)", timings.cached_tokens);
  if (timings.prefill_s > 0)
    text += fmt::format(" at {:.1f}/s", per_second(computed_tokens(timings), timings.prefill_s));
  text += fmt::format(", {} new", timings.output_tokens);
  if (timings.decode_s > 0)
    text += fmt::format(" at {:.1f}/s", per_second(timings.output_tokens - 1, timings.decode_s));
  return text + fmt::format(", {}", finish_reason_name(output.last->finish));
}

}  // namespace switchyard::cli
