// SPDX-License-Identifier: Apache-2.0
// switchyard stats: what a recorded routing says about load, imbalance, drift and topics; or what a running server does.
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/live_stats.h"
#include "cli/load_report.h"
#include "cli/terminal.h"
#include "cli/trace_plot.h"
#include "cli/trace_report.h"
#include "moe/trace/expert_load.h"
#include "moe/trace/reader.h"

namespace switchyard::cli {
namespace {

class Stats final : public Command {
 public:
  Stats(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  template <class Report, class Write, class Text>
  void print(const Report& report, Write write, Text text) const;
  ExitCode run_load() const;

  std::string path_, plot_;
  LiveOptions live_;
  TraceReportOptions options_;
  int layer_ = -1;
  bool json_ = false;
};

Stats::Stats(CLI::App& parent, CLI::App*& app) {
  options_.batch_sizes = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  app =
      parent.add_subcommand("stats", "What experts did: of a recording, or of a server that runs");
  app->add_option(
         "TRACE|URL", path_,
         "A trace of switchyard record, a dump of a server's recorder, or the http:// address "
         "of a server")
      ->required();
  app->add_option("--api-key", live_.key, "A key of the server")->envname("SWITCHYARD_API_KEY");
  app->add_option("--interval", live_.interval_s, "Seconds between two looks at a server")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app->add_flag("--once", live_.once,
                "One look at a server instead of a screen that renews itself");
  app->add_option("--batches", options_.batch_sizes, "Batch sizes to deal tokens into, as 1,8,64")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--windows", options_.num_windows, "Windows that drift is measured between")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  app->add_option("--plot", plot_, "Write a figure to this file, an SVG");
  app->add_option("--layer", layer_, "MoE layer of the figure's maps (default: the most telling)")
      ->check(CLI::Range(0, moe::kMaxTraceLayers));
  app->add_flag("--json", json_, "Print one JSON object");
}

template <class Report, class Write, class Text>
void Stats::print(const Report& report, Write write, Text text_of) const {
  std::string text;
  if (json_) {
    JsonWriter json(text);
    write(json, report);
    text += '\n';
  } else {
    text = text_of(report, stdout_look());
  }
  std::fputs(text.c_str(), stdout);
}

ExitCode Stats::run_load() const {
  if (!plot_.empty())
    return report(fail(Code::bad_request,
                       "--plot: {} has no steps to draw: it wants a trace of "
                       "switchyard record",
                       path_));
  auto load = moe::read_expert_load(path_);
  if (!load.ok()) return report(load.error());
  print(make_load_report(path_, *std::move(load)), write_load_report, load_report_text);
  return kOk;
}

ExitCode Stats::run() {
  if (path_.starts_with("http://") || path_.starts_with("https://")) {
    live_.url = path_;
    live_.json = json_;
    return watch_server(live_);
  }
  if (moe::looks_like_expert_load(path_)) return run_load();
  const auto trace = moe::TraceReader::open(path_);
  if (!trace.ok()) return report(trace.error());
  if (trace->num_steps() == 0)
    return report(
        fail(Code::bad_request, "{}: holds no step: nothing ran while it was recorded", path_));
  if (layer_ >= trace->header().num_layers)
    return report(fail(Code::bad_request, "--layer {}: the trace has MoE layers 0 to {}", layer_,
                       trace->header().num_layers - 1));
  TraceReport result = make_trace_report(trace->view(), options_);
  result.path = path_;
  if (!plot_.empty()) {
    const Status written = write_file_atomic(plot_, trace_figure(trace->view(), result, layer_));
    if (!written.ok()) return report(written.error());
  }
  print(result, write_trace_report, trace_report_text);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> make_stats(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Stats>(parent, app);
}

}  // namespace switchyard::cli
