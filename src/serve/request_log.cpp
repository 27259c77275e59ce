// SPDX-License-Identifier: Apache-2.0
#include "serve/request_log.h"

#include <cmath>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"

namespace switchyard::serve {
namespace {

/// "2026-11-30T03:04:05.678Z"
std::string time_text(int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     wall_ns / 1'000'000 % 1000);
}

/// Milliseconds to a microsecond.
double ms(double seconds) { return static_cast<double>(std::llround(seconds * 1e6)) / 1e3; }

double first_token_s(const RequestRecord& record) {
  return static_cast<double>(record.call.first_token_ns - record.received_ns) * 1e-9;
}

void write_call(JsonWriter& json, const RequestRecord& record) {
  const CallRecord& call = record.call;
  json.field("stream", call.stream).field("choices", call.choices);
  json.field("prompt_tokens", call.prompt_tokens);
  if (call.cached_tokens) json.field("cached_tokens", *call.cached_tokens);
  json.field("output_tokens", call.output_tokens);
  if (call.queue_s) json.field("queue_ms", ms(*call.queue_s));
  if (call.first_token_ns > 0) json.field("ttft_ms", ms(first_token_s(record)));
  if (call.finish != FinishReason::none) json.field("finish", finish_reason_name(call.finish));
  if (call.experts_touched) json.field("experts_touched_mean", *call.experts_touched);
}

std::string json_line(const RequestRecord& record, int64_t wall_ns) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("time", time_text(wall_ns)).field("kind", "request");
  json.field("id", record.id).field("method", record.method).field("route", record.route);
  json.field("status", record.status).field("complete", record.complete);
  json.field("start_ms", ms(record.response_start_s)).field("total_ms", ms(record.total_s));
  if (!record.call.error.empty()) json.field("error", record.call.error);
  if (record.call.choices > 0) write_call(json, record);
  json.end_object();
  return out;
}

/// Spaces too: the text format has words.
std::string word(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c > ' ' && c <= '~' && c != '\\')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out.empty() ? "-" : out;
}

std::string text_line(const RequestRecord& record, int64_t wall_ns) {
  std::string out = fmt::format("{} {} {} {} {:.1f}ms", time_text(wall_ns), record.method,
                                record.route, record.status, record.total_s * 1e3);
  const CallRecord& call = record.call;
  if (call.choices > 0) {
    out += fmt::format(" prompt={}", call.prompt_tokens);
    if (call.cached_tokens) out += fmt::format(" cached={}", *call.cached_tokens);
    out += fmt::format(" output={}", call.output_tokens);
    if (call.queue_s) out += fmt::format(" queue={:.1f}ms", *call.queue_s * 1e3);
    if (call.first_token_ns > 0) out += fmt::format(" ttft={:.1f}ms", first_token_s(record) * 1e3);
    if (call.finish != FinishReason::none)
      out += fmt::format(" finish={}", finish_reason_name(call.finish));
    if (call.experts_touched) out += fmt::format(" experts={:.1f}", *call.experts_touched);
  }
  if (!call.error.empty()) out += " error=" + call.error;
  if (!record.complete) out += " client_left";
  return out + " id=" + word(record.id);
}

}  // namespace

std::string request_line(LogFormat format, const RequestRecord& record, int64_t wall_ns) {
  return format == LogFormat::json ? json_line(record, wall_ns) : text_line(record, wall_ns);
}

int64_t wall_clock_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string message_line(const char* level, std::string_view text) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .field("time", time_text(wall_clock_ns()))
      .field("kind", "message")
      .field("level", level)
      .field("text", text)
      .end_object();
  return out;
}

}  // namespace switchyard::serve
