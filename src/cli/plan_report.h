// SPDX-License-Identifier: Apache-2.0
// What `switchyard plan` says: every placement policy, planned from the first part of a routing
// trace and held against the rest. Predictions from recorded picks; nothing is placed or timed.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal.h"
#include "moe/trace/expert_load.h"
#include "moe/trace/measures.h"
#include "moe/trace/reader.h"
#include "placement/table.h"

namespace switchyard::cli {

struct PlanOptions {
  int num_ranks = 8, num_replicas = 0, num_nodes = 1, num_groups = 1;
  double plan_share = 0.5;  ///< of the tokens, from the beginning: what policies see
};

/// What a plan is made from: the demand of steps in order, or of windows of them.
struct LoadSeries {
  moe::TraceHeader header;
  const char* unit = "steps";
  std::vector<int64_t> tokens;  ///< [steps]
  /// [E] picks before any drop, of a step and layer. Borrows what the series was made of.
  std::function<std::vector<double>(int64_t step, int layer)> demand;

  int64_t num_steps() const noexcept { return static_cast<int64_t>(tokens.size()); }
};
LoadSeries load_series(const moe::TraceView& trace);
LoadSeries load_series(const moe::ExpertLoad& load);

struct PolicyPlan {
  const placement::Policy* policy = nullptr;
  std::optional<Error> refused;  ///< the policy cannot place this; the rest is empty
  std::vector<placement::Placement> layers;
  std::vector<double> planned;  ///< [layer] rank imbalance of the load that it was planned from
  moe::Spread later;            ///< rank imbalance over later steps and layers, each its own value
  double busiest_picks = 0;     ///< summed over later steps and layers: picks of the busiest rank
  double gain = 0;              ///< round robin's busiest_picks over these
  double memory = 0;            ///< replicas over experts, mean over the layers
};

struct PlanReport {
  std::string path;
  moe::TraceHeader header;
  const char* unit = "steps";  ///< what "steps" below are
  PlanOptions options;
  int64_t planned_steps = 0, later_steps = 0;
  bool has_later = false;       ///< false: one step alone, which serves as both
  int layers_beyond_share = 0;  ///< whose hottest expert exceeds the fair share of a rank
  std::vector<PolicyPlan> plans;
};

/// The series must hold a step. Errors: bad_request for numbers that no policy can place.
Result<PlanReport> make_plan_report(const LoadSeries& series, const PlanOptions& options);

std::string plan_report_text(const PlanReport& report, const Look& look);
void write_plan_report(JsonWriter& json, const PlanReport& report);

}  // namespace switchyard::cli
