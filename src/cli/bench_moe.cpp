// SPDX-License-Identifier: Apache-2.0
// switchyard bench moe: one MoE layer with a given routing, beside its baselines and the machine's
// floor. Needs no model: weights are noise of the shape's sizes.
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/files.h"
#include "cli/bench.h"
#include "cli/bench_moe_cuda.h"
#include "cli/bench_moe_plot.h"
#include "cli/bench_moe_run.h"
#include "cli/bench_moe_shape.h"
#include "cli/ceilings_file.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "model/devices.h"

namespace switchyard::cli {
namespace {

class BenchMoe final : public Command {
 public:
  BenchMoe(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  Status check();
  Status measure();
  void add_row(const MoeRow& row);

  std::vector<std::string> shapes_{"olmoe-1b-7b"}, kernels_{"grouped"};
  std::vector<MoeShape> parsed_shapes_;
  std::string dtype_ = "bf16", device_name_ = "cpu", ceilings_file_, plot_, format_ = "md";
  DeviceId device_;
  int threads_ = 0;
  MoeBenchOptions options_;
  std::vector<MoeRow> rows_;
};

void declare_what(CLI::App& app, std::vector<std::string>& shapes,
                  std::vector<std::string>& kernels, std::string& dtype, MoeBenchOptions& options) {
  app.add_option("--shape", shapes,
                 "Layers, as olmoe-1b-7b,demo or experts/picks x width x expert width, as "
                 "64/8x2048x1024; known: " +
                     MoeShape::known_names())
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--tokens", options.tokens,
                 "Tokens of a step, as 1,32,256 (with deepseek-v3-ep8: of all eight ranks)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option(
         "--routing", options.routings,
         "Who gets which token: uniform, zipf:S, powerlaw:A, trace:FILE (tokens in the order "
         "of a recording) or trace-mixed:FILE (in random order)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--kernel", kernels,
                 "Ways of execution: grouped, naive (one expert after another), padded (C rows for "
                 "every expert)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option(
         "--capacity", options.capacities,
         "Capacity factors, as 0,1.0,1.25: an expert keeps at most factor x tokens x picks / "
         "experts (0: dropless; padded then pads to the largest load)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--dtype", dtype, "Weights: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
}

BenchMoe::BenchMoe(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("moe", "One MoE layer: grouped, naive and padded, against the floor");
  declare_what(*app, shapes_, kernels_, dtype_, options_);
  app->add_option("--device", device_name_, "Where the layer runs: cpu, cuda or cuda:N")
      ->capture_default_str();
  app->add_flag("--phases", options_.phases,
                "Time by phase as well, measured apart; the router's is not part of the time");
  app->add_option("--threads", threads_, "Compute threads (0: one per usable core)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_option("--layers", options_.layers,
                  "Copies of the layer that a run passes (0: as many as leave the caches, but no "
                  "more than the model has)")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app->add_option("-r,--repetitions", options_.repeats,
                  "Measured runs of each row (0: at least 5, and about 0.4 s)")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  app->add_option("--seed", options_.seed, "Of the routing that is drawn")->capture_default_str();
  app->add_option("--ceilings", ceilings_file_,
                  "Take the machine's ceilings from this file; measured and written if it does not "
                  "exist");
  app->add_option("--plot", plot_, "Write a figure of tokens per second to this file, an SVG");
  app->add_option("-o,--output", format_, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
}

Result<moe::Execution> find_execution(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(moe::kExecutionNames); ++i) {
    if (moe::kExecutionNames[i] == name) return static_cast<moe::Execution>(i);
    known += fmt::format("{}{}", i > 0 ? ", " : "", moe::kExecutionNames[i]);
  }
  return fail(Code::bad_request, "no kernel is called '{}'; known: {}", name, known);
}

/// Everything that can be said before anything is measured.
Status BenchMoe::check() {
  constexpr int kMaxTokens = 1 << 16;
  constexpr double kMaxCapacity = 1000;
  for (const std::string& text : shapes_) {
    SWITCHYARD_ASSIGN(MoeShape shape, MoeShape::parse(text));
    parsed_shapes_.push_back(std::move(shape));
  }
  for (const int tokens : options_.tokens)
    if (tokens < 1 || tokens > kMaxTokens)
      return fail(Code::bad_request, "--tokens has {}, expected 1 to {}", tokens, kMaxTokens);
  for (const double factor : options_.capacities)
    if (!(factor == 0 || (factor >= 0.01 && factor <= kMaxCapacity)))
      return fail(Code::bad_request,
                  "--capacity has {}, expected 0 (dropless) or a factor from 0.01 to {}", factor,
                  kMaxCapacity);
  options_.executions.clear();
  for (const std::string& name : kernels_) {
    SWITCHYARD_ASSIGN(const moe::Execution execution, find_execution(name));
    options_.executions.push_back(execution);
  }
  for (const MoeShape& shape : parsed_shapes_)
    for (const std::string& routing : options_.routings) {
      SWITCHYARD_TRY(moe::Traffic::open(routing, shape.num_experts, shape.top_k, options_.seed));
    }
  options_.dtype = dtype_ == "f32" ? DType::f32 : DType::bf16;
  SWITCHYARD_ASSIGN(device_, model::parse_device(device_name_));
  return {};
}

ExitCode BenchMoe::run() {
  Status status = check();
  if (status.ok()) status = measure();
  if (status.ok() && !plot_.empty()) status = write_file_atomic(plot_, moe_figure(rows_));
  if (!status.ok()) return report(status.error());
  if (format_ != "jsonl") std::fputs(moe_rows_text(rows_, format_).c_str(), stdout);
  return kOk;
}

Status BenchMoe::measure() {
  Pool pool({.num_threads = threads_});
  if (device_.kind == DeviceId::Kind::cuda) {
    return bench_moe_on_cuda(parsed_shapes_, options_, ceilings_file_, device_.index, pool,
                             [this](const MoeRow& row) { add_row(row); });
  }
  SWITCHYARD_ASSIGN(const cpu::Ceilings ceilings, load_ceilings(ceilings_file_, pool));
  for (const MoeShape& shape : parsed_shapes_) {
    SWITCHYARD_ASSIGN(const auto bench, MoeBench::create(shape, options_, pool, ceilings));
    SWITCHYARD_TRY(bench->run([this](const MoeRow& row) { add_row(row); }));
  }
  return {};
}

/// JSON lines come as they are measured: a long run that is stopped keeps what it had.
void BenchMoe::add_row(const MoeRow& row) {
  rows_.push_back(row);
  if (format_ != "jsonl") return;
  std::fputs(moe_rows_text({row}, format_).c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

std::unique_ptr<Command> make_bench_moe(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<BenchMoe>(parent, app);
}

}  // namespace switchyard::cli
