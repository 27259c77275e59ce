// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "moe/trace/batches.h"

namespace switchyard::cli {
namespace {

using Loads = std::vector<std::vector<double>>;  // [layer][E]

/// Steps [first, second) of a trace.
struct StepRange {
  int64_t begin = 0, end = 0;
};

/// The first steps that together hold at least the share of the tokens; the last step stays for
/// the other part where there is more than one.
int64_t steps_of_share(const LoadSeries& series, double share) {
  const auto& tokens_of = series.tokens;
  const double wanted =
      share * static_cast<double>(std::accumulate(tokens_of.begin(), tokens_of.end(), int64_t{0}));
  int64_t steps = 0;
  for (double tokens = 0; steps < series.num_steps() && tokens < wanted; ++steps)
    tokens += static_cast<double>(tokens_of[static_cast<size_t>(steps)]);
  return std::max<int64_t>(std::min(steps, series.num_steps() - 1), 1);
}

Loads sum_loads(const LoadSeries& series, const StepRange& range) {
  Loads loads(static_cast<size_t>(series.header.num_layers),
              std::vector<double>(static_cast<size_t>(series.header.num_experts)));
  for (int64_t i = range.begin; i < range.end; ++i)
    for (size_t l = 0; l < loads.size(); ++l) {
      const std::vector<double> demand = series.demand(i, static_cast<int>(l));
      for (size_t e = 0; e < demand.size(); ++e) loads[l][e] += demand[e];
    }
  return loads;
}

/// Places every layer, or says why the policy cannot.
void place_layers(PolicyPlan& plan, const Loads& loads, const PlanOptions& options) {
  for (const std::vector<double>& load : loads) {
    auto placed = plan.policy->place(
        {load, options.num_ranks, options.num_replicas, options.num_nodes, options.num_groups});
    if (!placed.ok()) {
      plan.refused = std::move(placed).error();
      plan.layers.clear();
      return;
    }
    plan.planned.push_back(placement::rank_imbalance(*placed, load));
    plan.memory += static_cast<double>(placed->num_replicas()) / placed->num_experts() /
                   static_cast<double>(loads.size());
    plan.layers.push_back(*std::move(placed));
  }
}

/// Holds a plan against steps that it has not seen.
void replay(PolicyPlan& plan, const LoadSeries& series, const StepRange& range) {
  std::vector<double> imbalances;
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (size_t l = 0; l < plan.layers.size(); ++l) {
      const std::vector<double> load = series.demand(i, static_cast<int>(l));
      const std::vector<double> ranks = placement::rank_loads(plan.layers[l], load);
      const double total = std::accumulate(ranks.begin(), ranks.end(), 0.0);
      if (total == 0) continue;
      const double busiest = *std::max_element(ranks.begin(), ranks.end());
      plan.busiest_picks += busiest;
      imbalances.push_back(busiest * static_cast<double>(ranks.size()) / total);
    }
  }
  plan.later = moe::spread_of(std::move(imbalances));
}

int count_beyond_share(const Loads& loads, int num_ranks) {
  return static_cast<int>(std::count_if(loads.begin(), loads.end(), [&](const auto& load) {
    const double total = std::accumulate(load.begin(), load.end(), 0.0);
    return *std::max_element(load.begin(), load.end()) * num_ranks > total;
  }));
}

/// Of any layer: what a rank must have room for.
int most_slots(const PolicyPlan& plan) {
  int most = 0;
  for (const placement::Placement& layer : plan.layers) most = std::max(most, layer.slots_per_rank);
  return most;
}

void write_placement(JsonWriter& json, const placement::Placement& placement) {
  std::vector<std::vector<int>> held(
      static_cast<size_t>(placement.num_ranks),
      std::vector<int>(static_cast<size_t>(placement.slots_per_rank), -1));
  for (int e = 0; e < placement.num_experts(); ++e)
    for (const placement::SlotId& at : placement.replicas[static_cast<size_t>(e)])
      held[static_cast<size_t>(at.rank)][static_cast<size_t>(at.slot)] = e;
  json.begin_array();
  for (const std::vector<int>& rank : held) {
    json.begin_array();
    for (const int expert : rank) json.integer(expert);
    json.end_array();
  }
  json.end_array();
}

void write_plan(JsonWriter& json, const PolicyPlan& plan) {
  json.begin_object().field("policy", plan.policy->name);
  if (plan.refused) {
    json.field("refused", plan.refused->message).end_object();
    return;
  }
  json.field("slots_per_rank", most_slots(plan));
  json.field("memory_ratio", plan.memory).field("gain", plan.gain);
  json.field("busiest_rank_picks", plan.busiest_picks);
  json.key("rank_imbalance").begin_object().field("mean", plan.later.mean);
  json.field("p50", plan.later.p50).field("p95", plan.later.p95).field("max", plan.later.max);
  json.end_object().key("planned_rank_imbalance").begin_array();
  for (const double value : plan.planned) json.real(value);
  // [layer][rank][slot], -1 where a slot is empty
  json.end_array().key("placement").begin_array();
  for (const placement::Placement& layer : plan.layers) write_placement(json, layer);
  json.end_array().end_object();
}

std::string ratio(double value) { return fmt::format("{:.2f}", value); }

}  // namespace

LoadSeries load_series(const moe::TraceView& trace) {
  LoadSeries series;
  series.header = trace.header();
  for (int64_t i = 0; i < trace.num_steps(); ++i)
    series.tokens.push_back(trace.step(i).num_tokens());
  series.demand = [&trace](int64_t step, int layer) {
    const auto demand = trace.step(step).demand(layer);
    return std::vector<double>(demand.begin(), demand.end());
  };
  return series;
}

LoadSeries load_series(const moe::ExpertLoad& load) {
  LoadSeries series;
  series.header = load.header;
  series.unit = "windows";
  for (const moe::ExpertLoadWindow& window : load.windows) series.tokens.push_back(window.tokens);
  series.demand = [&load](int64_t window, int layer) {
    const auto& counts =
        load.windows[static_cast<size_t>(window)].counts[static_cast<size_t>(layer)];
    return std::vector<double>(counts.begin(), counts.end());
  };
  return series;
}

Result<PlanReport> make_plan_report(const LoadSeries& series, const PlanOptions& options) {
  PlanReport report;
  report.header = series.header;
  report.unit = series.unit;
  report.options = options;
  report.planned_steps = steps_of_share(series, options.plan_share);
  report.has_later = report.planned_steps < series.num_steps();
  const StepRange later{report.has_later ? report.planned_steps : 0, series.num_steps()};
  report.later_steps = later.end - later.begin;
  const Loads loads = sum_loads(series, {0, report.planned_steps});
  SWITCHYARD_TRY((placement::Problem{loads.front(), options.num_ranks, options.num_replicas,
                                     options.num_nodes, options.num_groups}
                      .check()));
  report.layers_beyond_share = count_beyond_share(loads, options.num_ranks);
  for (const placement::Policy* policy : placement::policies()) {
    PolicyPlan plan;
    plan.policy = policy;
    place_layers(plan, loads, options);
    if (!plan.refused) replay(plan, series, later);
    const double plain =
        report.plans.empty() ? plan.busiest_picks : report.plans.front().busiest_picks;
    if (plan.busiest_picks > 0) plan.gain = plain / plan.busiest_picks;
    report.plans.push_back(std::move(plan));
  }
  return report;
}

std::string plan_report_text(const PlanReport& report, const Look& look) {
  Table table({{"policy", Align::left},
               {"slots", Align::right},
               {"memory", Align::right},
               {"planned", Align::right},
               {"worst layer", Align::right},
               {std::string("later ") + report.unit, Align::right},
               {"p95", Align::right},
               {"gain", Align::right},
               {"", Align::left}});
  for (const PolicyPlan& plan : report.plans) {
    const std::string name(plan.policy->name);
    if (plan.refused) {
      table.add({name, "", "", "", "", "", "", "", plan.refused->message});
      continue;
    }
    table.add({name, std::to_string(most_slots(plan)), fmt::format("+{:.1f}%", 100 * plan.memory),
               ratio(moe::mean_over_layers(plan.planned)),
               ratio(*std::max_element(plan.planned.begin(), plan.planned.end())),
               ratio(plan.later.mean), ratio(plan.later.p95), fmt::format("{:.2f}x", plan.gain),
               std::string(plan.policy->help)});
  }
  std::string text = fmt::format(
      "{}: {}, {} MoE layers of {} experts on {} ranks, up to {} replicas a layer\n"
      "predicted from recorded picks; nothing was placed or timed\n\n",
      printable(report.path), printable(report.header.model), report.header.num_layers,
      report.header.num_experts, report.options.num_ranks, report.options.num_replicas);
  text += table.text(look);
  text += fmt::format(
      "planned: busiest rank over the mean, of the load of the first {} {}, mean over layers\n"
      "later {}: the same of each of {} {} and layer, mean; gain: picks of the busiest ranks "
      "there, round robin's over the policy's\n",
      report.planned_steps, report.unit, report.unit, report.later_steps,
      report.has_later ? std::string("later ") + report.unit
                       : "step or window (the same one: there is no other)");
  if (report.layers_beyond_share > 0)
    text += fmt::format(
        "in {} of {} layers one expert has more than a rank's fair share: only replicas help "
        "there\n",
        report.layers_beyond_share, report.header.num_layers);
  return text;
}

void write_plan_report(JsonWriter& json, const PlanReport& report) {
  json.begin_object().field("trace", report.path).field("model", report.header.model);
  json.field("predicted", true).field("num_ranks", report.options.num_ranks);
  json.field("num_replicas", report.options.num_replicas);
  json.field("num_nodes", report.options.num_nodes).field("num_groups", report.options.num_groups);
  json.field("unit", report.unit);
  json.field("planned_steps", report.planned_steps).field("later_steps", report.later_steps);
  json.field("layers_beyond_fair_share", report.layers_beyond_share);
  json.key("policies").begin_array();
  for (const PolicyPlan& plan : report.plans) write_plan(json, plan);
  json.end_array().end_object();
}

}  // namespace switchyard::cli
