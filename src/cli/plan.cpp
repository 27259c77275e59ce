// SPDX-License-Identifier: Apache-2.0
// switchyard plan: which rank should hold which expert, from a recorded routing trace.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/json.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/plan_report.h"
#include "cli/terminal.h"
#include "moe/trace/expert_load.h"
#include "moe/trace/reader.h"

namespace switchyard::cli {
namespace {

class Plan final : public Command {
 public:
  Plan(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  Result<PlanReport> plan() const;

  std::string path_;
  PlanOptions options_;
  bool json_ = false;
};

Plan::Plan(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("plan", "Predicts where experts should live, from a routing trace");
  app->add_option("TRACE", path_, "A trace of switchyard record, or a dump of a server's recorder")
      ->required();
  app->add_option("--ranks", options_.num_ranks, "Ranks that share the experts")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--replicas", options_.num_replicas, "Experts that may live twice, in each layer")
      ->check(CLI::Range(0, moe::kMaxTraceExperts))
      ->capture_default_str();
  app->add_option("--nodes", options_.num_nodes, "Nodes of the ranks (eplb)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app->add_option("--groups", options_.num_groups, "Groups of experts that share a node (eplb)")
      ->check(CLI::Range(1, moe::kMaxTraceExperts))
      ->capture_default_str();
  app->add_option("--plan-share", options_.plan_share,
                  "Part of the tokens to plan from; the rest judges the plan")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_flag("--json", json_, "Print one JSON object, with every placement");
}

Result<PlanReport> Plan::plan() const {
  if (moe::looks_like_expert_load(path_)) {
    SWITCHYARD_ASSIGN(const moe::ExpertLoad load, moe::read_expert_load(path_));
    return make_plan_report(load_series(load), options_);
  }
  SWITCHYARD_ASSIGN(const moe::TraceReader trace, moe::TraceReader::open(path_));
  if (trace.num_steps() == 0)
    return fail(Code::bad_request, "{}: holds no step: nothing ran while it was recorded", path_);
  return make_plan_report(load_series(trace.view()), options_);
}

ExitCode Plan::run() {
  auto result = plan();
  if (!result.ok()) return report(result.error());
  result->path = path_;
  std::string text;
  if (json_) {
    JsonWriter json(text);
    write_plan_report(json, *result);
    text += '\n';
  } else {
    text = plan_report_text(*result, stdout_look());
  }
  std::fputs(text.c_str(), stdout);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> make_plan(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Plan>(parent, app);
}

}  // namespace switchyard::cli
