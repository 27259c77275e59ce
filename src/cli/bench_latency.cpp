// SPDX-License-Identifier: Apache-2.0
// switchyard bench latency: prompts of random tokens, in the manner of llama-bench. Rows ppN: N prompt tokens of one sequence;
// tgN: N steps in which every sequence of a batch adds a token, after a prompt of --context. Tokens per second over the whole
// batch, mean and sample deviation, and the load that it was measured under: experts touched and hottest over mean, of a MoE
// layer and a step, means. JSON has the median as well, and what a step of tgN must read beside its time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/bench.h"
#include "cli/bench_decode.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/outputs.h"
#include "model/devices.h"

namespace switchyard::cli {
namespace {

struct Measurement {
  std::string test;           // "pp512"
  std::vector<double> rates;  // tokens per second, one per repetition
  DecodeShape decode;         // of tgN
  DecodeRun middle;           // of tgN: means over the repetitions

  bool decode_step() const { return middle.seconds > 0; }
  double step_ms() const { return decode.sequences * 1e3 / median(); }
  double mean() const {
    return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  }
  double median() const {
    std::vector<double> sorted = rates;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  double deviation() const {
    if (rates.size() < 2) return 0;
    double sum = 0;
    for (const double rate : rates) sum += (rate - mean()) * (rate - mean());
    return std::sqrt(sum / static_cast<double>(rates.size() - 1));
  }
};

class BenchLatency final : public Command {
 public:
  BenchLatency(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  Result<double> read_gbps() const;
  Result<Measurement> measure_prompt(int tokens);
  Result<Measurement> measure_decode(const DecodeShape& shape);
  Result<RequestTimings> play(int prompt_tokens, int output_tokens, uint32_t stream);
  Status warm_up();
  Status measure_all(std::vector<Measurement>& measurements);
  double floor_ms(const Measurement& m) const;
  void write_decode(JsonWriter& json, const Measurement& m) const;
  void print(const std::vector<Measurement>& measurements) const;
  void print_json(const std::vector<Measurement>& measurements) const;

  ModelOptions model_;
  std::vector<int> prompts_{512}, outputs_{128}, batches_{1};
  int repetitions_ = 5, context_ = 1;
  bool floor_ = false;
  double gbps_ = 0;  // with --floor
  std::string format_ = "md", trace_file_;
  std::unique_ptr<Engine> engine_;
};

BenchLatency::BenchLatency(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("latency", "Prompt and generation speed of one or more sequences");
  model_.declare(*app);
  model_.declare_random(*app);
  app->add_option("-p,--prompt-tokens", prompts_, "Prompt lengths, as 512,64 (0: none)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app->add_option("-n,--output-tokens", outputs_, "Numbers of generated tokens, as 128 (0: none)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app->add_option("-b,--batch", batches_, "Sequences that generate together, as 1,8,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("-c,--context", context_, "Prompt tokens of each generating sequence")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_flag(
      "--floor", floor_,
      "Measure the device's read bandwidth, and say which share of it generation reaches: "
      "bytes of touched weights, keys and values over the time of a step");
  app->add_option("-r,--repetitions", repetitions_, "Measured runs of each test")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app->add_option("-o,--output", format_, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  app->add_option("--trace", trace_file_,
                  "Write a Chrome trace of the steps to this file, for ui.perfetto.dev; the runs "
                  "then take the time of phases too");
}

ExitCode BenchLatency::run() {
  model_.engine.max_sequences = *std::max_element(batches_.begin(), batches_.end());
  model_.engine.prefix_cache = false;  // the same prompt is measured again and again
  if (!trace_file_.empty()) model_.engine.trace_events = kChromeTraceEvents;
  if (floor_) {  // while the device's memory is free
    const auto gbps = read_gbps();
    if (!gbps.ok()) return report(gbps.error());
    gbps_ = *gbps;
  }
  auto engine = open_engine(model_);
  if (!engine.ok()) return report(engine.error());
  engine_ = *std::move(engine);
  std::vector<Measurement> measurements;
  const Status status = measure_all(measurements);
  if (!status.ok()) return report(status.error());
  print(measurements);
  if (trace_file_.empty()) return kOk;
  const Status written = write_file_atomic(trace_file_, engine_->chrome_trace());
  return written.ok() ? kOk : report(written.error());
}

Result<double> BenchLatency::read_gbps() const {
  SWITCHYARD_ASSIGN(const DeviceId device, model::parse_device(model_.engine.device));
  Pool pool(PoolOptions{model_.engine.threads});
  return model::find_device(device)->measure_read_gbps(device.index, pool);
}

Status BenchLatency::measure_all(std::vector<Measurement>& measurements) {
  SWITCHYARD_TRY(warm_up());
  for (const int tokens : prompts_) {
    if (tokens == 0) continue;
    SWITCHYARD_ASSIGN(Measurement measurement, measure_prompt(tokens));
    measurements.push_back(std::move(measurement));
  }
  for (const int tokens : outputs_) {
    for (const int batch : batches_) {
      if (tokens == 0) continue;
      SWITCHYARD_ASSIGN(Measurement measurement, measure_decode({batch, context_, tokens}));
      measurements.push_back(std::move(measurement));
    }
  }
  return {};
}

/// Touches every page and kernel once: the first run of a model reads its weights for the first
/// time.
Status BenchLatency::warm_up() {
  const int most = std::max(engine_->summary().max_model_len / 2, 1);
  SWITCHYARD_ASSIGN(const auto timings, play(std::min(64, most), std::min(8, most), 0));
  (void)timings;
  return {};
}

Result<Measurement> BenchLatency::measure_prompt(int tokens) {
  Measurement measurement;
  measurement.test = fmt::format("pp{}", tokens);
  for (int i = 0; i < repetitions_; ++i) {
    engine_->reset_stats();
    SWITCHYARD_ASSIGN(const RequestTimings timings, play(tokens, 1, static_cast<uint32_t>(i + 1)));
    measurement.rates.push_back(tokens / timings.prefill_s);
    measurement.middle.experts_touched += mean_experts_touched(*engine_) / repetitions_;
    measurement.middle.imbalance += mean_imbalance(*engine_) / repetitions_;
  }
  return measurement;
}

Result<Measurement> BenchLatency::measure_decode(const DecodeShape& shape) {
  Measurement measurement;
  measurement.test = fmt::format("tg{}", shape.steps);
  measurement.decode = shape;
  for (int i = 0; i < repetitions_; ++i) {
    SWITCHYARD_ASSIGN(
        const DecodeRun run,
        run_decode(*engine_, shape, model_.engine.max_step_tokens, static_cast<uint32_t>(i + 1)));
    measurement.rates.push_back(run.tokens_per_s(shape));
    measurement.middle.seconds += run.seconds / repetitions_;
    measurement.middle.mean_context += run.mean_context / repetitions_;
    measurement.middle.experts_touched += run.experts_touched / repetitions_;
    measurement.middle.imbalance += run.imbalance / repetitions_;
  }
  return measurement;
}

Result<RequestTimings> BenchLatency::play(int prompt_tokens, int output_tokens, uint32_t stream) {
  const int needed = prompt_tokens + output_tokens;
  if (needed > engine_->summary().max_model_len)
    return fail(Code::bad_request, "{} prompt and {} output tokens, but sequences may have {}",
                prompt_tokens, output_tokens, engine_->summary().max_model_len);
  Request request;
  request.moe_stats = false;
  request.prompt_tokens = bench_prompt(prompt_tokens, engine_->summary().vocab, stream);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output_tokens;
  request.sampling.ignore_eos = true;
  Outputs outputs(1);
  SWITCHYARD_ASSIGN(
      const RequestId id,
      engine_->submit(std::move(request), [&](const Event& event) { outputs.push(0, event); }));
  (void)id;
  engine_->wait_idle();
  const Event& last = *outputs.at(0).last;
  if (last.error) return *last.error;
  return last.timings;
}

void BenchLatency::print(const std::vector<Measurement>& measurements) const {
  if (format_ == "json" || format_ == "jsonl") return print_json(measurements);
  const ModelSummary& summary = engine_->summary();
  Table table({{"model", Align::left},
               {"size", Align::right},
               {"params", Align::right},
               {"active", Align::right},
               {"dtype", Align::left},
               {"threads", Align::right},
               {"kernel", Align::left},
               {"test", Align::right},
               {"batch", Align::right},
               {"touched", Align::right},
               {"imbalance", Align::right},
               {"ms/step", Align::right},
               {"of floor", Align::right},
               {"t/s", Align::right}});
  for (const Measurement& m : measurements) {
    const bool decodes = m.decode_step(), routed = m.middle.experts_touched > 0;
    table.add({summary.architecture, size_text(summary.weight_bytes),
               count_text(summary.total_parameters), count_text(summary.active_parameters),
               model_.dtype, std::to_string(summary.threads), summary.kernel, m.test,
               decodes ? std::to_string(m.decode.sequences) : "1",
               routed ? fmt::format("{:.1f}", m.middle.experts_touched) : "",
               routed ? fmt::format("{:.2f}", m.middle.imbalance) : "",
               decodes ? fmt::format("{:.3f}", m.step_ms()) : "",
               decodes && floor_ ? fmt::format("{:.2f}", floor_ms(m) / m.step_ms()) : "",
               fmt::format("{:.2f} \u00B1 {:.2f}", m.mean(), m.deviation())});
  }
  std::fputs((format_ == "csv" ? table.csv() : table.markdown()).c_str(), stdout);
}

double BenchLatency::floor_ms(const Measurement& m) const {
  return step_bytes(engine_->summary(), m.decode, m.middle) / gbps_ * 1e-6;
}

void BenchLatency::write_decode(JsonWriter& json, const Measurement& m) const {
  json.field("batch", m.decode.sequences).field("context", m.decode.context);
  json.field("step_ms", m.step_ms()).field("mean_context", m.middle.mean_context);
  json.field("step_bytes", step_bytes(engine_->summary(), m.decode, m.middle));
  if (!floor_) return;
  json.field("read_gbps", gbps_).field("floor_ms", floor_ms(m));
  json.field("floor_share", floor_ms(m) / m.step_ms());
}

void BenchLatency::print_json(const std::vector<Measurement>& measurements) const {
  const ModelSummary& summary = engine_->summary();
  std::string text;
  const auto write = [&](JsonWriter& json, const Measurement& m) {
    json.begin_object().field("model", summary.architecture).field("path", model_.engine.model);
    json.field("random", model_.engine.random_model);
    if (!model_.engine.random_model.empty())
      json.field("random_spread", static_cast<double>(model_.engine.random_spread));
    json.field("device", summary.device);
    json.field("weight_bytes", summary.weight_bytes);
    json.field("placed_bytes", summary.placed_bytes);
    json.field("total_parameters", summary.total_parameters);
    json.field("active_parameters", summary.active_parameters);
    json.field("dtype", model_.dtype).field("threads", summary.threads);
    json.field("kernel", summary.kernel).field("test", m.test);
    json.field("experts_touched", m.middle.experts_touched);
    json.field("load_imbalance", m.middle.imbalance);
    if (m.decode_step()) write_decode(json, m);
    json.field("median_tokens_per_s", m.median());
    json.field("mean_tokens_per_s", m.mean()).field("deviation_tokens_per_s", m.deviation());
    json.key("tokens_per_s").begin_array();
    for (const double rate : m.rates) json.real(rate);
    json.end_array().end_object();
  };
  if (format_ == "json") {
    JsonWriter json(text, 2);
    json.begin_array();
    for (const Measurement& m : measurements) write(json, m);
    json.end_array();
    text += '\n';
  } else {
    for (const Measurement& m : measurements) {
      JsonWriter json(text);
      write(json, m);
      text += '\n';
    }
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

std::unique_ptr<Command> make_bench_latency(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<BenchLatency>(parent, app);
}

}  // namespace switchyard::cli
