// SPDX-License-Identifier: Apache-2.0
// switchyard bench latency: one sequence at a time, prompts of random tokens, in the manner of
// llama-bench. Rows ppN: N prompt tokens in one request; tgN: N tokens generated after one. Tokens
// per second, mean and sample deviation; JSON has the median as well.
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
#include "base/random.h"
#include "base/result.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/outputs.h"

namespace switchyard::cli {
namespace {

constexpr uint32_t kTokenSeed = 42;  // the same random prompts in every run

struct Measurement {
  std::string test;           // "pp512"
  std::vector<double> rates;  // tokens per second, one per repetition

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
  Result<Measurement> measure(int prompt_tokens, int output_tokens);
  Result<RequestTimings> play(int prompt_tokens, int output_tokens, uint32_t stream);
  Status warm_up();
  void print(const std::vector<Measurement>& measurements) const;
  void print_json(const std::vector<Measurement>& measurements) const;

  ModelOptions model_;
  std::vector<int> prompts_{512}, outputs_{128};
  int repetitions_ = 5;
  std::string format_ = "md", trace_file_;
  std::unique_ptr<Engine> engine_;
};

BenchLatency::BenchLatency(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("latency", "One sequence: prompt and generation speed");
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
  model_.engine.max_sequences = 1;
  if (!trace_file_.empty()) model_.engine.trace_events = kChromeTraceEvents;
  auto engine = open_engine(model_);
  if (!engine.ok()) return report(engine.error());
  engine_ = *std::move(engine);
  if (const Status status = warm_up(); !status.ok()) return report(status.error());
  std::vector<Measurement> measurements;
  const auto add = [&](int prompt_tokens, int output_tokens) -> Status {
    if (prompt_tokens + output_tokens == 0) return {};
    SWITCHYARD_ASSIGN(Measurement measurement, measure(prompt_tokens, output_tokens));
    measurements.push_back(std::move(measurement));
    return {};
  };
  Status status;
  for (size_t i = 0; status.ok() && i < prompts_.size(); ++i) status = add(prompts_[i], 0);
  for (size_t i = 0; status.ok() && i < outputs_.size(); ++i) status = add(0, outputs_[i]);
  if (!status.ok()) return report(status.error());
  print(measurements);
  if (trace_file_.empty()) return kOk;
  const Status written = write_file_atomic(trace_file_, engine_->chrome_trace());
  return written.ok() ? kOk : report(written.error());
}

/// Touches every page and kernel once: the first run of a model reads its weights for the first
/// time.
Status BenchLatency::warm_up() {
  const int most = std::max(engine_->summary().max_model_len / 2, 1);
  SWITCHYARD_ASSIGN(const auto timings, play(std::min(64, most), std::min(8, most), 0));
  (void)timings;
  return {};
}

/// A prompt test when output_tokens is 0, else a generation test.
Result<Measurement> BenchLatency::measure(int prompt_tokens, int output_tokens) {
  const bool generates = output_tokens > 0;
  Measurement measurement;
  measurement.test =
      generates ? fmt::format("tg{}", output_tokens) : fmt::format("pp{}", prompt_tokens);
  for (int i = 0; i < repetitions_; ++i) {
    // The first token comes from the prompt's own step; so a generation test asks for one more.
    SWITCHYARD_ASSIGN(const RequestTimings timings,
                      play(generates ? 1 : prompt_tokens, generates ? output_tokens + 1 : 1,
                           static_cast<uint32_t>(i + 1)));
    measurement.rates.push_back(generates ? output_tokens / timings.decode_s
                                          : prompt_tokens / timings.prefill_s);
  }
  return measurement;
}

Result<RequestTimings> BenchLatency::play(int prompt_tokens, int output_tokens, uint32_t stream) {
  const auto vocab = static_cast<uint32_t>(engine_->summary().vocab);
  const int needed = prompt_tokens + output_tokens;
  if (needed > engine_->summary().max_model_len)
    return fail(Code::bad_request, "{} prompt and {} output tokens, but sequences may have {}",
                prompt_tokens, output_tokens, engine_->summary().max_model_len);
  Request request;
  for (int i = 0; i < prompt_tokens; ++i)
    request.prompt_tokens.push_back(static_cast<int32_t>(
        philox4x32({static_cast<uint32_t>(i), stream, 0, 0}, {kTokenSeed, 0})[0] % vocab));
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
               {"t/s", Align::right}});
  for (const Measurement& m : measurements)
    table.add({summary.architecture, size_text(summary.weight_bytes),
               count_text(summary.total_parameters), count_text(summary.active_parameters),
               model_.dtype, std::to_string(summary.threads), summary.kernel, m.test,
               fmt::format("{:.2f} \u00B1 {:.2f}", m.mean(), m.deviation())});
  std::fputs((format_ == "csv" ? table.csv() : table.markdown()).c_str(), stdout);
}

void BenchLatency::print_json(const std::vector<Measurement>& measurements) const {
  const ModelSummary& summary = engine_->summary();
  std::string text;
  const auto write = [&](JsonWriter& json, const Measurement& m) {
    json.begin_object().field("model", summary.architecture).field("path", model_.engine.model);
    json.field("random", model_.engine.random_model).field("device", summary.device);
    json.field("weight_bytes", summary.weight_bytes);
    json.field("total_parameters", summary.total_parameters);
    json.field("active_parameters", summary.active_parameters);
    json.field("dtype", model_.dtype).field("threads", summary.threads);
    json.field("kernel", summary.kernel).field("test", m.test);
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
