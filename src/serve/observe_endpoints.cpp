// SPDX-License-Identifier: Apache-2.0
// What can be seen of a server: metrics, the experts at work, their recorder, and the page that shows it all.
#include <algorithm>
#include <utility>

#include "base/exposition.h"
#include "base/json.h"
#include "serve/arrival.h"
#include "serve/dashboard.h"
#include "serve/fields.h"
#include "serve/moe_json.h"
#include "serve/server.h"
#include "serve/vllm_metrics.h"

namespace switchyard::serve {
namespace {

std::string record_json(const RoutingRecord::State& state) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .field("object", "moe.record")
      .field("recording", state.recording)
      .field("stage", state.stage)
      .field("steps", state.steps)
      .field("tokens", state.tokens)
      .end_object();
  return out;
}

constexpr const char* kRejected = "switchyard_requests_rejected_total";
constexpr const char* kRejectedHelp = "Requests that were turned away, by reason";
constexpr const char* kLeft = "switchyard_client_disconnects_total";
constexpr const char* kLeftHelp = "Clients that went before their answer was complete, by stage";
constexpr const char* kStages[] = {"queued", "prefill", "decode"};  // by GenerationHooks::Left

}  // namespace

/// Every value that a label can have is there from the start: a rate sees the first event, too.
void Server::register_metrics() {
  for (const char* reason : {"queue_full", "draining", "too_large", "rate_limited", "unauthorized"})
    (void)registry_.counter(kRejected, kRejectedHelp, {{"reason", reason}});
  for (const char* stage : kStages) (void)registry_.counter(kLeft, kLeftHelp, {{"stage", stage}});
  registry_
      .gauge("process_start_time_seconds",
             "When the program began to answer, in seconds since 1970")
      .set(start_time_s_);
}

void Server::count_left(GenerationHooks::Left left) {
  registry_.counter(kLeft, kLeftHelp, {{"stage", kStages[static_cast<size_t>(left)]}}).add();
}

void Server::metrics(Arrival& arrival) {
  registry_
      .gauge("switchyard_engine_ready", "1 while calls are taken; 0 while loading, draining, dead")
      .set(state_ == State::ready ? 1 : 0);
  const HttpCounts counts = http_->counts();
  const std::pair<const char*, int64_t> states[] = {
      {"idle", counts.idle}, {"active", counts.active}, {"streaming", counts.streaming}};
  for (const auto& [name, count] : states)
    registry_.gauge("switchyard_http_connections", "Open connections, by state", {{"state", name}})
        .set(static_cast<double>(count));
  HttpReply reply;
  reply.content_type = "text/plain; version=0.0.4";
  const Engine* const engine = engine_;
  const std::string of_engine = engine != nullptr ? engine->metrics_text() : "";
  reply.body = join_expositions(registry_.prometheus_text(), of_engine);
  if (options_.vllm_metrics) reply.body += vllm_metrics(of_engine, options_.served_names.front());
  answer(arrival, std::move(reply));
}

/// Requests that the server itself turned away; the engine counts its own under the same name.
void Server::count_refusal(std::string_view code) {
  constexpr std::pair<const char*, const char*> kReasons[] = {
      {"queue_full", "queue_full"},     {"draining", "draining"},
      {"body_too_large", "too_large"},  {"headers_too_large", "too_large"},
      {"rate_limited", "rate_limited"}, {"invalid_api_key", "unauthorized"}};
  for (const auto& [known, reason] : kReasons)
    if (code == known) registry_.counter(kRejected, kRejectedHelp, {{"reason", reason}}).add();
}

void Server::on_end(RequestRecord& record) {
  if (record.complete)
    registry_
        .histogram("switchyard_http_request_duration_seconds",
                   "From the last byte of a request to the end of its answer", latency_bounds(),
                   {{"route", record.route}})
        .observe(record.total_s);
  if (options_.log_format != LogFormat::none && options_.request_log)
    options_.request_log(request_line(options_.log_format, record, wall_clock_ns()));
}

void Server::moe_stats(Arrival& arrival) {
  const Engine& engine = *engine_.load();
  answer(arrival, json_reply(moe_json(engine.summary(), engine.stats(), start_time_s_)));
}

void Server::moe_placement(Arrival& arrival) {
  const Engine& engine = *engine_.load();
  answer(arrival, json_reply(placement_json(engine.summary(), engine.stats())));
}

/// Answers itself when there is nothing to record with.
bool Server::check_record(Arrival& arrival) {
  if (options_.routing_record != nullptr && engine_.load()->summary().moe_layers > 0) return true;
  answer(arrival,
         ApiError{400, "unsupported_parameter",
                  "this server has no routing to record: the model has no MoE layer, or the "
                  "program that embeds the server gave it no recorder",
                  ""});
  return false;
}

void Server::record_start(Arrival& arrival) {
  if (!check_record(arrival)) return;
  std::string stage = "all";
  if (!arrival.request.body.empty()) {
    Json json;
    if (const auto error = parse_body(arrival.request.body, json)) return answer(arrival, *error);
    Fields fields(json);
    fields.text("stage", stage);
    if (fields.error()) return answer(arrival, *fields.error());
  }
  if (!RoutingRecord::known_stage(stage))
    return answer(arrival, refuse_field("stage", "invalid_value",
                                        "stage is not one of all, prefill, decode and mixed"));
  const ModelSummary& summary = engine_.load()->summary();
  if (!options_.routing_record->start(stage, summary.moe_layers, summary.experts))
    return answer(
        arrival,
        ApiError{409, "already_recording",
                 "routing is being recorded already: POST /v1/moe/record/stop ends it", ""});
  answer(arrival, json_reply(record_json(options_.routing_record->state())));
}

void Server::record_stop(Arrival& arrival) {
  if (!check_record(arrival)) return;
  if (!options_.routing_record->stop())
    return answer(arrival,
                  ApiError{409, "not_recording",
                           "nothing is being recorded: POST /v1/moe/record/start begins", ""});
  answer(arrival, json_reply(record_json(options_.routing_record->state())));
}

/// While it goes on, too.
void Server::record_dump(Arrival& arrival) {
  if (!check_record(arrival)) return;
  if (!options_.routing_record->state().any)
    return answer(arrival, ApiError{409, "nothing_recorded",
                                    "nothing was recorded: POST /v1/moe/record/start begins", ""});
  answer(arrival,
         json_reply(options_.routing_record->dump(
             engine_.load()->summary(), options_.served_names.front(), options_.model_hash)));
}

void Server::dashboard(Arrival& arrival) {
  answer(arrival, dashboard_reply(arrival.record->route));
}

}  // namespace switchyard::serve
