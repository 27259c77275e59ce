// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_serve_report.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/terminal.h"

namespace switchyard::cli {
namespace {

using client::Spread;
using client::Summary;

constexpr double kLate = 5e-3;  // seconds; below, nobody waited for a place

std::string line(std::string_view name, int64_t value) {
  return fmt::format("{:<40} {:<10}\n", name, value);
}

std::string line(std::string_view name, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", name, value);
}

std::string section(std::string_view title, const char* short_name, const Spread& spread) {
  std::string text = fmt::format("{:-^50}\n", title);
  text += line(fmt::format("Mean {} (ms):", short_name), spread.mean * 1e3);
  text += line(fmt::format("Median {} (ms):", short_name), spread.median * 1e3);
  text += line(fmt::format("P99 {} (ms):", short_name), spread.p99 * 1e3);
  return text;
}

/// In the order and the words of vLLM.
std::string counts_block(const ServeRow& row) {
  const Summary& s = row.summary;
  std::string text = line("Successful requests:", s.answered);
  text += line("Failed requests:", s.failed + s.turned_away);
  if (s.cancelled > 0) text += line("Cancelled requests:", s.cancelled);
  if (row.point.concurrency > 0)
    text += line("Maximum request concurrency:", int64_t{row.point.concurrency});
  if (row.point.rate > 0) text += line("Request rate configured (RPS):", row.point.rate);
  text += line("Benchmark duration (s):", s.duration_s);
  text += line("Total input tokens:", s.input_tokens);
  text += line("Total generated tokens:", s.output_tokens);
  text += line("Request throughput (req/s):", s.per_second(s.answered));
  if (!row.slo.empty()) text += line("Request goodput (req/s):", s.per_second(s.good));
  text += line("Output token throughput (tok/s):", s.per_second(s.output_tokens));
  text += line("Peak output token throughput (tok/s):", static_cast<double>(s.peak_events_per_s));
  text += line("Peak concurrent requests:", static_cast<double>(s.peak_concurrency));
  text += line("Total Token throughput (tok/s):", s.per_second(s.input_tokens + s.output_tokens));
  return text;
}

std::string notes(const Summary& s) {
  std::string text;
  for (const auto& [kind, failure] : s.failures) text += line(printable(kind) + ":", failure.count);
  if (s.resent > 0) text += line("Requests sent again (connection closed):", s.resent);
  if (s.not_sent > 0) text += line("Requests not sent in time:", s.not_sent);
  if (s.late_s.p99 > kLate) text += line("P99 late to be sent (ms):", s.late_s.p99 * 1e3);
  if (s.without_usage > 0) text += line("Answers without usage (events counted):", s.without_usage);
  if (s.without_text > 0) text += line("Answers without any text:", s.without_text);
  if (!text.empty()) text = fmt::format("{:-^50}\n", "Besides") + text;
  return text;
}

void write_spread(JsonWriter& json, std::string_view name, const Spread& spread) {
  json.key(name).begin_object().field("count", spread.count);
  json.field("mean", spread.mean * 1e3).field("median", spread.median * 1e3);
  json.field("p90", spread.p90 * 1e3).field("p99", spread.p99 * 1e3);
  json.field("max", spread.most * 1e3).end_object();
}

void write_request(JsonWriter& json, const ServeRow& row) {
  const client::Workload& w = row.workload;
  json.field("bench", "serve");
  if (!row.label.empty()) json.field("label", row.label);
  json.field("url", row.url).field("model", w.model);
  json.field("endpoint", w.endpoint == client::Endpoint::chat ? "chat" : "completions");
  json.field("concurrency", row.point.concurrency).field("request_rate", row.point.rate);
  json.key("input_tokens");
  if (w.prompts.empty())
    json.begin_array().integer(w.input_tokens.low).integer(w.input_tokens.high).end_array();
  else
    json.null();  // texts of a file
  json.key("output_tokens").begin_array();
  json.integer(w.output_tokens.low).integer(w.output_tokens.high).end_array();
  json.field("ignore_eos", w.ignore_eos).field("temperature", w.temperature);
  json.field("cancel_rate", w.cancel_rate).field("seed", w.seed);
}

void write_counts(JsonWriter& json, const ServeRow& row) {
  const Summary& s = row.summary;
  json.field("answered", s.answered).field("failed", s.failed);
  json.field("turned_away", s.turned_away).field("cancelled", s.cancelled);
  json.field("not_sent", s.not_sent).field("resent", s.resent);
  json.field("without_usage", s.without_usage).field("without_text", s.without_text);
  json.key("failures").begin_object();
  for (const auto& [kind, failure] : s.failures) {
    json.key(kind).begin_object().field("count", failure.count);
    json.field("example", failure.example).end_object();
  }
  json.end_object();
  json.field("duration_s", s.duration_s);
  json.field("total_input_tokens", s.input_tokens).field("total_output_tokens", s.output_tokens);
  json.field("requests_per_s", s.per_second(s.answered));
  if (!row.slo.empty()) {
    json.field("good", s.good).field("good_requests_per_s", s.per_second(s.good));
  }
  json.field("output_tokens_per_s", s.per_second(s.output_tokens));
  json.field("total_tokens_per_s", s.per_second(s.input_tokens + s.output_tokens));
  json.field("peak_events_per_s", s.peak_events_per_s);
  json.field("peak_concurrency", s.peak_concurrency);
}

void write_row(JsonWriter& json, const ServeRow& row) {
  json.begin_object();
  write_request(json, row);
  write_counts(json, row);
  write_spread(json, "first_event_ms", row.summary.first_event_s);
  write_spread(json, "ttft_ms", row.summary.ttft_s);
  write_spread(json, "tpot_ms", row.summary.tpot_s);
  write_spread(json, "itl_ms", row.summary.itl_s);
  write_spread(json, "e2e_ms", row.summary.e2e_s);
  write_spread(json, "late_ms", row.summary.late_s);
  json.end_object();
}

std::string middle_and_tail(const Spread& spread) {
  return fmt::format("{:.1f} / {:.1f}", spread.median * 1e3, spread.p99 * 1e3);
}

}  // namespace

std::string serve_block(const ServeRow& row) {
  const Summary& s = row.summary;
  return fmt::format("{:=^50}\n", " Serving Benchmark Result ") + counts_block(row) +
         section("Time to First Token", "TTFT", s.ttft_s) +
         section("Time per Output Token (excl. 1st token)", "TPOT", s.tpot_s) +
         section("Inter-token Latency", "ITL", s.itl_s) +
         section("End-to-end Latency", "E2EL", s.e2e_s) + notes(s) + std::string(50, '=') + '\n';
}

std::string serve_table(const std::vector<ServeRow>& rows) {
  Table table({{"clients", Align::right},
               {"req/s asked", Align::right},
               {"answered", Align::right},
               {"failed", Align::right},
               {"turned away", Align::right},
               {"left", Align::right},
               {"req/s", Align::right},
               {"good req/s", Align::right},
               {"out t/s", Align::right},
               {"TTFT p50 / p99 ms", Align::right},
               {"TPOT ms", Align::right},
               {"ITL ms", Align::right},
               {"E2E ms", Align::right},
               {"late ms", Align::right}});
  for (const ServeRow& row : rows) {
    const Summary& s = row.summary;
    table.add({row.point.concurrency > 0 ? std::to_string(row.point.concurrency) : "",
               row.point.rate > 0 ? fmt::format("{:g}", row.point.rate) : "",
               std::to_string(s.answered), std::to_string(s.failed), std::to_string(s.turned_away),
               std::to_string(s.cancelled), fmt::format("{:.2f}", s.per_second(s.answered)),
               row.slo.empty() ? "" : fmt::format("{:.2f}", s.per_second(s.good)),
               fmt::format("{:.1f}", s.per_second(s.output_tokens)), middle_and_tail(s.ttft_s),
               middle_and_tail(s.tpot_s), middle_and_tail(s.itl_s), middle_and_tail(s.e2e_s),
               s.late_s.p99 > kLate ? middle_and_tail(s.late_s) : ""});
  }
  return table.markdown();
}

std::string serve_json(const std::vector<ServeRow>& rows) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_array();
  for (const ServeRow& row : rows) write_row(json, row);
  json.end_array();
  return text + '\n';
}

std::string serve_json_line(const ServeRow& row) {
  std::string text;
  JsonWriter json(text);
  write_row(json, row);
  return text + '\n';
}

ExitCode report_failures(const std::vector<ServeRow>& rows) {
  bool failed = false;
  for (const ServeRow& row : rows) {
    failed |= row.summary.failed > 0 || row.summary.answered + row.summary.cancelled == 0;
    for (const auto& [kind, failure] : row.summary.failures)
      std::fprintf(stderr, "switchyard: %lld x %s: %s\n", static_cast<long long>(failure.count),
                   printable(kind).c_str(), printable(failure.example).c_str());
  }
  return failed ? kFailure : kOk;
}

}  // namespace switchyard::cli
