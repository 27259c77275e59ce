// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "moe/trace/batches.h"
#include "moe/trace/closed_forms.h"

namespace switchyard::cli {
namespace {

constexpr size_t kPairs = 8;
constexpr int kBarColumns = 16;
/// Numbers that topics may take: each one keeps counts of all experts of all layers.
constexpr size_t kMostTopicCounts = size_t{1} << 27;

std::vector<BatchRow> measure_batches(const moe::TraceView& trace,
                                      const moe::TraceMeasures& measures,
                                      const std::vector<int64_t>& sizes) {
  const int num_experts = trace.header().num_experts, top_k = trace.header().top_k;
  const auto across = moe::regroup(trace, moe::BatchOrder::across_requests, sizes);
  const auto along = moe::regroup(trace, moe::BatchOrder::along_requests, sizes);
  std::vector<BatchRow> rows;
  for (size_t i = 0; i < across.size(); ++i) {
    BatchRow row{across[i].batch, across[i].num_batches};
    row.across = moe::mean_over_layers(across[i].imbalance);
    row.along = moe::mean_over_layers(along[i].imbalance);
    row.touched = moe::mean_over_layers(across[i].touched);
    row.uniform = moe::uniform_imbalance(num_experts, top_k, row.batch);
    for (const moe::LayerMeasures& layer : measures.layers) {
      const std::vector<double> pi = moe::inclusion(layer.load, top_k);
      const auto layers = static_cast<double>(measures.layers.size());
      row.expected += moe::expected_imbalance(pi, row.batch) / layers;
      row.expected_touched += moe::expected_touched(pi, row.batch) / layers;
    }
    rows.push_back(row);
  }
  return rows;
}

size_t topic_counts(const moe::TraceView& trace) {
  const auto layer_counts = static_cast<size_t>(trace.header().num_layers) *
                            static_cast<size_t>(trace.header().num_experts);
  return trace.topics().size() * layer_counts;
}

std::string ratio(double value) { return fmt::format("{:.2f}", value); }
std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

// --- Text -----------------------------------------------------------------------------------------

std::string heading(const TraceReport& report) {
  const moe::TraceHeader& header = report.header;
  return fmt::format(
      "{}: {}, {} MoE layers, {} experts, {} picks a token; {} tokens in {} steps{}\n",
      printable(report.path), printable(header.model), header.num_layers, header.num_experts,
      header.top_k, report.num_tokens, report.num_steps, header.has_picks ? "" : ", counts alone");
}

std::string layers_text(const TraceReport& report, const Look& look) {
  std::vector<Column> columns{{"MoE layer", Align::right},
                              {"imbalance", Align::right},
                              {"p50", Align::right},
                              {"p95", Align::right},
                              {"max", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  for (const char* title : {"touched", "floor", "entropy", "dropped", "drift", "noise"})
    columns.emplace_back(title, Align::right);
  if (!report.pairs.empty()) columns.emplace_back("strongest pair", Align::left);
  Table table(columns);
  double most = 0;
  for (const moe::LayerMeasures& layer : report.measures.layers)
    most = std::max(most, layer.imbalance.mean);
  for (size_t l = 0; l < report.measures.layers.size(); ++l) {
    const moe::LayerMeasures& layer = report.measures.layers[l];
    std::vector<std::string> cells{std::to_string(l), ratio(layer.imbalance.mean),
                                   ratio(layer.imbalance.p50), ratio(layer.imbalance.p95),
                                   ratio(layer.imbalance.max)};
    if (look.terminal) cells.push_back(bar(layer.imbalance.mean / most, kBarColumns));
    const double dropped =
        layer.picks > 0 ? static_cast<double>(layer.dropped) / static_cast<double>(layer.picks) : 0;
    cells.insert(cells.end(), {fmt::format("{:.1f}", layer.touched), ratio(layer.floor),
                               fmt::format("{:.3f}", layer.entropy), percent(dropped),
                               fmt::format("{:.3f}", report.drift.neighbours[l]),
                               fmt::format("{:.3f}", report.drift.noise[l])});
    if (!report.pairs.empty()) {
      const auto& pairs = report.pairs[l];
      cells.push_back(
          pairs.empty() ? "" : fmt::format("{}+{} {:.1f}x", pairs[0].a, pairs[0].b, pairs[0].lift));
    }
    table.add(std::move(cells));
  }
  return "\nper layer: imbalance of each step, then its mean and spread over the steps\n" +
         table.text(look);
}

std::string stages_text(const TraceReport& report, const Look& look) {
  Table table({{"steps of", Align::left},
               {"steps", Align::right},
               {"tokens a step", Align::right},
               {"imbalance", Align::right},
               {"p50", Align::right},
               {"p95", Align::right},
               {"max", Align::right},
               {"touched", Align::right}});
  for (int s = 0; s < moe::kNumTraceStages; ++s) {
    const moe::StageMeasures& stage = report.measures.stages[s];
    if (stage.steps == 0) continue;
    table.add({moe::trace_stage_name(static_cast<moe::TraceStage>(s)), std::to_string(stage.steps),
               fmt::format("{:.1f}",
                           static_cast<double>(stage.tokens) / static_cast<double>(stage.steps)),
               ratio(stage.imbalance.mean), ratio(stage.imbalance.p50), ratio(stage.imbalance.p95),
               ratio(stage.imbalance.max), fmt::format("{:.1f}", stage.touched)});
  }
  return "\nby kind of step, over all layers\n" + table.text(look);
}

std::string batches_text(const TraceReport& report, const Look& look) {
  if (report.batches.empty())
    return report.header.has_picks
               ? ""
               : "\nimbalance by batch size and co-activation need a trace of record --picks\n";
  std::vector<Column> columns{{"batch", Align::right},           {"batches", Align::right},
                              {"across requests", Align::right}, {"along", Align::right},
                              {"expected", Align::right},        {"uniform", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  columns.emplace_back("touched", Align::right);
  columns.emplace_back("expected", Align::right);
  Table table(columns);
  const double most = report.batches.front().across;
  for (const BatchRow& row : report.batches) {
    std::vector<std::string> cells{std::to_string(row.batch), std::to_string(row.num_batches),
                                   ratio(row.across),         ratio(row.along),
                                   ratio(row.expected),       ratio(row.uniform)};
    if (look.terminal) cells.push_back(bar(row.across / most, kBarColumns));
    cells.push_back(fmt::format("{:.1f}", row.touched));
    cells.push_back(fmt::format("{:.1f}", row.expected_touched));
    table.add(std::move(cells));
  }
  return "\nimbalance by batch size: the trace's tokens dealt anew; expected: independent tokens "
         "of "
         "its popularity\n" +
         table.text(look);
}

std::string topics_text(const TraceReport& report, const Look& look) {
  const moe::TopicSkew& skew = report.topics;
  if (skew.topics.size() < 2) return "";
  std::vector<Column> columns{{"topic", Align::left},
                              {"tokens", Align::right},
                              {"imbalance", Align::right},
                              {"worst layer", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  columns.emplace_back("distance", Align::right);
  Table table(columns);
  double most = 0;
  for (const moe::TopicMeasures& topic : skew.topics)
    most = std::max(most, moe::mean_over_layers(topic.imbalance));
  const auto add = [&](const std::string& name, int64_t tokens, const std::vector<double>& values,
                       const std::string& distance) {
    const double mean = moe::mean_over_layers(values);
    std::vector<std::string> cells{clip(printable(name), 32), std::to_string(tokens), ratio(mean),
                                   ratio(*std::max_element(values.begin(), values.end()))};
    if (look.terminal) cells.push_back(bar(mean / most, kBarColumns));
    cells.push_back(distance);
    table.add(std::move(cells));
  };
  int64_t tokens = 0;
  for (const moe::TopicMeasures& topic : skew.topics) {
    add(topic.name, topic.tokens, topic.imbalance,
        fmt::format("{:.3f}", moe::mean_over_layers(topic.distance)));
    tokens += topic.tokens;
  }
  add("(all, evenly mixed)", tokens, skew.mixed_imbalance, "");
  std::string text =
      "\ntopics: imbalance of a topic's whole load, which large batches of it keep; mean over "
      "layers, and the worst\n" +
      table.text(look);
  if (skew.mixed_tokens > 0)
    text += fmt::format(
        "{} tokens in steps of several topics are left out: record --picks tells "
        "them apart\n",
        skew.mixed_tokens);
  return text;
}

// --- JSON -----------------------------------------------------------------------------------------

void write_spread(JsonWriter& json, const char* name, const moe::Spread& spread) {
  json.key(name).begin_object().field("mean", spread.mean).field("p50", spread.p50);
  json.field("p95", spread.p95).field("max", spread.max).end_object();
}

template <class T>
void write_numbers(JsonWriter& json, const char* name, const std::vector<T>& numbers) {
  json.key(name).begin_array();
  for (const T& number : numbers) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      json.unsigned_integer(number);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      json.integer(number);
    } else {
      json.real(number);
    }
  }
  json.end_array();
}

void write_layers(JsonWriter& json, const TraceReport& report) {
  json.key("layers").begin_array();
  for (size_t l = 0; l < report.measures.layers.size(); ++l) {
    const moe::LayerMeasures& layer = report.measures.layers[l];
    json.begin_object();
    write_spread(json, "imbalance", layer.imbalance);
    json.field("touched", layer.touched).field("floor", layer.floor);
    json.field("entropy", layer.entropy);
    json.field("picks", layer.picks).field("dropped", layer.dropped);
    json.field("drift", report.drift.neighbours[l]).field("drift_noise", report.drift.noise[l]);
    json.field("drift_first_to_last", report.drift.ends[l]);
    write_numbers(json, "load", layer.load);
    if (!report.pairs.empty()) {
      json.key("pairs").begin_array();
      for (const moe::ExpertPair& pair : report.pairs[l])
        json.begin_object()
            .field("a", pair.a)
            .field("b", pair.b)
            .field("tokens", pair.tokens)
            .field("lift", pair.lift)
            .end_object();
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
}

void write_stages(JsonWriter& json, const TraceReport& report) {
  json.key("stages").begin_object();
  for (int s = 0; s < moe::kNumTraceStages; ++s) {
    const moe::StageMeasures& stage = report.measures.stages[s];
    json.key(moe::trace_stage_name(static_cast<moe::TraceStage>(s))).begin_object();
    json.field("steps", stage.steps).field("tokens", stage.tokens);
    write_spread(json, "imbalance", stage.imbalance);
    json.field("touched", stage.touched).end_object();
  }
  json.end_object();
}

void write_batches(JsonWriter& json, const TraceReport& report) {
  json.key("batches").begin_array();
  for (const BatchRow& row : report.batches) {
    json.begin_object().field("batch", row.batch).field("batches", row.num_batches);
    json.field("imbalance_across_requests", row.across);
    json.field("imbalance_along_requests", row.along);
    json.field("imbalance_expected", row.expected).field("imbalance_uniform", row.uniform);
    json.field("touched", row.touched).field("touched_expected", row.expected_touched);
    json.end_object();
  }
  json.end_array();
}

void write_topics(JsonWriter& json, const TraceReport& report) {
  const moe::TopicSkew& skew = report.topics;
  json.key("topics").begin_array();
  for (const moe::TopicMeasures& topic : skew.topics) {
    json.begin_object().field("topic", topic.name).field("tokens", topic.tokens);
    write_numbers(json, "imbalance", topic.imbalance);
    write_numbers(json, "distance", topic.distance);
    json.key("load").begin_array();
    for (const moe::LoadCounts& load : topic.load) {
      json.begin_array();
      for (const uint64_t picks : load) json.unsigned_integer(picks);
      json.end_array();
    }
    json.end_array().end_object();
  }
  json.end_array();
  write_numbers(json, "evenly_mixed_imbalance", skew.mixed_imbalance);
  json.field("tokens_of_mixed_steps", skew.mixed_tokens);
  json.field("tokens_without_topic", skew.unlabelled_tokens);
}

}  // namespace

TraceReport make_trace_report(const moe::TraceView& trace, const TraceReportOptions& options) {
  TraceReport report;
  report.header = trace.header();
  report.num_steps = trace.num_steps();
  report.num_tokens = trace.num_tokens();
  report.measures = moe::measure(trace);
  report.drift = moe::measure_drift(trace, options.num_windows);
  if (topic_counts(trace) <= kMostTopicCounts) report.topics = moe::measure_topics(trace);
  if (!trace.header().has_picks) return report;
  report.batches = measure_batches(trace, report.measures, options.batch_sizes);
  if (trace.header().num_experts > moe::kMaxCoactivationExperts) return report;
  for (int layer = 0; layer < trace.header().num_layers; ++layer)
    report.pairs.push_back(moe::strongest_pairs(moe::measure_coactivation(trace, layer), kPairs));
  return report;
}

std::string trace_report_text(const TraceReport& report, const Look& look) {
  return heading(report) + layers_text(report, look) + stages_text(report, look) +
         batches_text(report, look) + topics_text(report, look);
}

void write_trace_report(JsonWriter& json, const TraceReport& report) {
  json.begin_object().field("trace", report.path).field("model", report.header.model);
  json.field("num_moe_layers", report.header.num_layers);
  json.field("num_experts", report.header.num_experts).field("top_k", report.header.top_k);
  json.field("picks", report.header.has_picks);
  json.field("steps", report.num_steps).field("tokens", report.num_tokens);
  write_layers(json, report);
  write_stages(json, report);
  write_numbers(json, "drift_window_tokens", report.drift.window_tokens);
  write_batches(json, report);
  write_topics(json, report);
  json.end_object();
}

}  // namespace switchyard::cli
