// SPDX-License-Identifier: Apache-2.0
#include "cli/model_options.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/log_sink.h"
#include "cli/progress.h"
#include "model/geometries.h"
#include "moe/capacity.h"

namespace switchyard::cli {
namespace {

std::string capacity_rounding_names() {
  std::string names;
  for (const moe::CapacityRounding& rounding : moe::capacity_roundings())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rounding.name);
  return names;
}

std::string capacity_text(const EngineOptions& options) {
  return fmt::format("{} times an even share ({}), then {}", options.capacity_factor,
                     options.capacity_rounding, options.overflow);
}

}  // namespace

void ModelOptions::declare_model(CLI::App& app) {
  app.add_option("MODEL", engine.model, "A Hugging Face model folder")->required();
  app.add_option("--device", engine.device, "Where the model runs: cpu, cuda or cuda:N")
      ->capture_default_str();
  app.add_option("--dtype", dtype,
                 "Arithmetic of weights and activations: bf16, or f32 for exact comparison")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--threads", engine.threads, "Compute threads (0: one per usable core)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--max-step-tokens", engine.max_step_tokens,
                 "Token budget of one step; longer prompts are cut into chunks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("-q,--quiet", quiet, "Nothing on standard error but errors");
  app.add_flag("-v,--verbose", verbose, "More messages");
}

void ModelOptions::declare_capacity_rules(CLI::App& app) {
  app.add_option("--overflow", engine.overflow,
                 "Which picks an expert over its capacity drops: drop_lowest (by weight) or "
                 "drop_last (by position)")
      ->check(CLI::IsMember({"drop_lowest", "drop_last"}))
      ->capture_default_str();
  app.add_option("--capacity-rounding", engine.capacity_rounding,
                 "How a capacity becomes a whole number: " + capacity_rounding_names())
      ->capture_default_str();
}

void ModelOptions::declare(CLI::App& app) {
  declare_model(app);
  app.add_option("--max-sequences", engine.max_sequences, "Sequences that run in one step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--max-model-len", engine.max_model_len,
                 "Longest prompt plus output (0: what the model was made for)")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--kv-cache-size", engine.kv_cache_bytes,
                 "Memory of the KV cache, such as 512MiB (0: enough, within free memory)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--capacity-factor", engine.capacity_factor,
                 "Picks that an expert takes in a step, over an even share (0: all, dropless)")
      ->capture_default_str();
  declare_capacity_rules(app);
}

EngineOptions ModelOptions::engine_options() const {
  EngineOptions options = engine;
  options.precision = dtype == "f32" ? Precision::f32 : Precision::bf16;
  return options;
}

model::CapacityLimit ModelOptions::capacity_limit(float factor) const {
  return {factor, engine.overflow, engine.capacity_rounding};
}

void ModelOptions::install_log() const {
  const LogLevel lowest = lowest_level(quiet, verbose);
  if (json_lines)
    install_json_log_sink(lowest, json_lines);
  else
    install_log_sink(lowest);
}

void ModelOptions::declare_random(CLI::App& app) {
  std::string names;
  for (const model::Geometry& geometry : model::geometries())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", geometry.name);
  CLI::Option* folder = app.get_option("MODEL")->required(false);
  CLI::Option* random = app.add_option("--random", engine.random_model,
                                       "Random weights made in place, of this geometry: " + names);
  random->excludes(folder);
  app.add_option("--random-spread", engine.random_spread,
                 "How uneven random weights load their experts: standard deviations between the "
                 "experts' mean logits; 0 is even, 2 nearly collapsed")
      ->needs(random)
      ->check(CLI::Range(0.0f, 10.0f))
      ->capture_default_str();
}

Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options) {
  options.install_log();
  if (options.engine.model.empty() && options.engine.random_model.empty())
    return fail(Code::bad_request, "no model: give a Hugging Face folder, or --random NAME");
  EngineOptions engine_options = options.engine_options();
  const Look look = stderr_look();
  ProgressBar progress(look);
  const bool shows = !options.quiet && !options.json_lines;
  if (shows) engine_options.on_progress = [&](const LoadProgress& at) { progress.update(at); };
  auto engine = Engine::open(engine_options);
  progress.clear();
  if (engine.ok() && shows)
    std::fputs(summary_text((*engine)->summary(), engine_options, look).c_str(), stderr);
  return engine;
}

std::string summary_text(const ModelSummary& summary, const EngineOptions& options,
                         const Look& look) {
  Table table({{"", Align::left}, {"", Align::left}});
  table.add({"model", fmt::format("{}, {} layers{}", summary.architecture, summary.layers,
                                  summary.moe_layers == 0 ? ""
                                  : summary.moe_layers == summary.layers
                                      ? ", all MoE"
                                      : fmt::format(", {} of them MoE", summary.moe_layers))});
  if (summary.moe_layers > 0)
    table.add(
        {"experts", fmt::format("{} a layer, {} for each token", summary.experts, summary.top_k)});
  if (options.capacity_factor != 0) table.add({"capacity", capacity_text(options)});
  table.add(
      {"parameters", fmt::format("{}, {} active for a token", count_text(summary.total_parameters),
                                 count_text(summary.active_parameters))});
  table.add({"weights", fmt::format("{} in {}, {} of them experts", size_text(summary.weight_bytes),
                                    options.precision == Precision::f32 ? "f32" : "bf16",
                                    size_text(summary.expert_bytes))});
  table.add({"KV cache", fmt::format("{}: {} positions, {} sequences of {} at once",
                                     size_text(summary.kv_cache_bytes), summary.kv_tokens,
                                     std::max<int64_t>(
                                         summary.kv_tokens / std::max(summary.max_model_len, 1), 1),
                                     summary.max_model_len)});
  table.add(
      {"runs on", fmt::format("{}, {} thread{}, experts by {}", summary.device, summary.threads,
                              summary.threads == 1 ? "" : "s", summary.kernel)});
  table.add({"chat", summary.chat_template.empty() ? "no template in this folder"
                                                   : "template of " + summary.chat_template});
  table.add({"loaded", fmt::format("in {}", time_text(summary.load_s))});
  return table.text(look, Table::Titles::left_out);
}

}  // namespace switchyard::cli
