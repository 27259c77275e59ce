// SPDX-License-Identifier: Apache-2.0
#include "cli/live_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

namespace switchyard::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kDropAlarm = 0.02;  // where the engine warns too
constexpr std::pair<const char*, const char*> kLatencies[] = {
    {"first token", "switchyard_time_to_first_token_seconds"},
    {"between tokens", "switchyard_inter_token_latency_seconds"},
    {"queue", "switchyard_request_queue_seconds"},
    {"prefill", "switchyard_request_prefill_seconds"},
    {"decode", "switchyard_request_decode_seconds"},
    {"whole request", "switchyard_request_duration_seconds"},
};

/// 0 for what is missing: read_snapshot() has looked at what must be there.
double number(const Json& json, std::string_view name) {
  const Json* const found = json.find(name);
  if (found == nullptr || !found->is_number()) return 0;
  return found->kind() == Json::Kind::unsigned_integer ? static_cast<double>(found->as_unsigned())
                                                       : found->as_double();
}

const Json::Array& array(const Json& json, std::string_view name) {
  static const Json::Array none;
  const Json* const found = json.find(name);
  return found != nullptr && found->is_array() ? found->as_array() : none;
}

double value_of(const Json& json) {
  return json.kind() == Json::Kind::unsigned_integer ? static_cast<double>(json.as_unsigned())
                                                     : json.as_double();
}

/// A layer's sums between two answers; imbalance and experts touched are means over the layer's own steps, so that between
/// is the difference of their sums.
LiveLayer layer_between(const Json& now, const Json* before) {
  LiveLayer layer;
  const auto difference = [&](const char* name) {
    return number(now, name) - (before != nullptr ? number(*before, name) : 0);
  };
  const double steps = difference("steps");
  const auto mean = [&](const char* name) {
    const double early = before != nullptr ? number(*before, name) * number(*before, "steps") : 0;
    return steps > 0 ? (number(now, name) * number(now, "steps") - early) / steps : kUnknown;
  };
  layer.picks = difference("assignments");
  layer.dropped = difference("dropped");
  layer.imbalance = mean("imbalance");
  layer.touched = mean("experts_touched");
  const Json::Array& load = array(now, "load");
  const Json::Array* const early = before != nullptr ? &array(*before, "load") : nullptr;
  for (size_t e = 0; e < load.size(); ++e)
    layer.load.push_back(value_of(load[e]) -
                         (early != nullptr && e < early->size() ? value_of((*early)[e]) : 0));
  return layer;
}

std::string model_text(const LiveSnapshot& now) {
  const MetricFamily* const config = now.metrics.find("switchyard_config_info");
  const bool known = config != nullptr && !config->samples.empty();
  return fmt::format("{}, {} MoE layers of {} experts, {} for each token{}",
                     known ? config->samples[0].label("model") : "model",
                     number(now.stats, "moe_layers"), number(now.stats, "experts"),
                     number(now.stats, "top_k"),
                     known ? fmt::format(", {}", config->samples[0].label("quant")) : "");
}

void add_phases(LiveView& view, const LiveSnapshot& now, const LiveSnapshot* before) {
  double known = 0;
  const Json::Array& phases = array(now.stats, "phases");
  for (const Json& phase : phases) {
    const Json* const name = phase.find("name");
    if (name == nullptr || !name->is_string()) continue;
    double seconds = number(phase, "seconds");
    if (before != nullptr)
      for (const Json& early : array(before->stats, "phases"))
        if (const Json* of = early.find("name");
            of != nullptr && of->is_string() && of->as_string() == name->as_string())
          seconds -= number(early, "seconds");
    if (seconds > 0) view.phases.emplace_back(name->as_string(), seconds);
    known += std::max(seconds, 0.0);
  }
  std::sort(view.phases.begin(), view.phases.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  if (known > 0 && view.step_s > known) view.phases.emplace_back("other", view.step_s - known);
}

std::string time(double seconds) { return std::isfinite(seconds) ? time_text(seconds) : "-"; }
std::string count(double value) {
  return std::isfinite(value) ? count_text(std::llround(value)) : "-";
}
std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : "-";
}

std::string digits(double value, int after_the_point) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, after_the_point) : "-";
}

/// One character for each expert, or for several when there is no room; by load over the even share, full at four times.
std::string strip(const LiveLayer& layer, int columns) {
  constexpr const char* kHeights[] = {"\u00B7", "\u2581", "\u2582", "\u2583", "\u2584",
                                      "\u2585", "\u2586", "\u2587", "\u2588"};
  const auto room = static_cast<size_t>(std::max(columns, 1));
  const size_t each = std::max<size_t>((layer.load.size() + room - 1) / room, 1);
  std::string out;
  for (size_t e = 0; e < layer.load.size(); e += each) {
    const auto first = layer.load.begin() + static_cast<std::ptrdiff_t>(e);
    const auto last =
        layer.load.begin() + static_cast<std::ptrdiff_t>(std::min(e + each, layer.load.size()));
    const double most = *std::max_element(first, last);
    const double over =
        layer.picks > 0 ? most * static_cast<double>(layer.load.size()) / layer.picks : 0;
    out += kHeights[over > 0 ? std::clamp(static_cast<int>(std::ceil(over * 2)), 1, 8) : 0];
  }
  return out;
}

std::string numbers_text(const LiveView& view, const Look& look) {
  const auto line = [&](const std::string& name, const std::string& text, bool alarm = false) {
    return pad(name, 12, Align::left) +
           styled(clip(text, std::max(look.columns - 12, 20)), alarm ? Style::red : Style::bold,
                  look) +
           "\n";
  };
  std::string out;
  out += line("tokens/s",
              fmt::format("{} out, {} prompt", count(view.output_per_s), count(view.prompt_per_s)));
  out += line("requests", fmt::format("{} running, {} waiting, {} finished, {} turned away",
                                      count(view.running), count(view.waiting),
                                      count(view.finished), count(view.rejected)));
  out += line("imbalance", fmt::format("{} mean, {} worst layer", digits(view.mean_imbalance(), 2),
                                       digits(view.worst_imbalance(), 2)));
  out += line("dropped",
              percent(view.drop_rate()) +
                  (view.capacity_factor == 0
                       ? ", dropless"
                       : fmt::format(", capacity {} times an even share", view.capacity_factor)),
              view.drop_rate() > kDropAlarm);
  out += line("KV cache", percent(view.kv_usage) + " used");
  return out;
}

std::string layers_text(const LiveView& view, const Look& look, int rows) {
  constexpr int kBefore = 42;  // columns of the numbers
  Table table({{"layer", Align::right},
               {"imbalance", Align::right},
               {"touched", Align::right},
               {"hottest", Align::right},
               {"load of experts, full at 4 even shares", Align::left, Style::cyan}});
  const size_t shown =
      rows > 0 ? std::min(view.layers.size(), static_cast<size_t>(rows)) : view.layers.size();
  for (size_t l = 0; l < shown; ++l) {
    const LiveLayer& layer = view.layers[l];
    const auto hottest = std::max_element(layer.load.begin(), layer.load.end());
    const bool any = layer.picks > 0 && hottest != layer.load.end();
    table.add(
        {std::to_string(l), digits(layer.imbalance, 2), digits(layer.touched, 1),
         any ? fmt::format("e{} {}", hottest - layer.load.begin(), percent(*hottest / layer.picks))
             : "-",
         strip(layer, look.columns - kBefore)});
  }
  std::string text = table.text(look);
  if (shown < view.layers.size())
    text += fmt::format("and {} more layers\n", view.layers.size() - shown);
  return text;
}

std::string phases_text(const LiveView& view, const Look& look) {
  if (view.phases.empty()) return "";
  constexpr int kBarColumns = 20;
  std::vector<Column> columns{
      {"phase", Align::left}, {"share", Align::right}, {"a step", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  Table table(columns);
  const double longest = view.phases.front().second;
  for (const auto& [name, seconds] : view.phases) {
    std::vector<std::string> cells{printable(name), percent(seconds / view.step_s),
                                   time(seconds / view.steps)};
    if (look.terminal) cells.push_back(bar(seconds / longest, kBarColumns));
    table.add(std::move(cells));
  }
  return table.text(look);
}

std::string quantile_text(const LatencyRow& row, double value) {
  if (value <= row.least) return "< " + time(row.least);
  if (value >= row.most) return "> " + time(row.most);
  return time(value);
}

std::string latencies_text(const LiveView& view, const Look& look) {
  Table table({{"latency", Align::left},
               {"p50", Align::right},
               {"p95", Align::right},
               {"p99", Align::right},
               {"count", Align::right}});
  for (const LatencyRow& row : view.latencies)
    table.add({row.name, quantile_text(row, row.p50), quantile_text(row, row.p95),
               quantile_text(row, row.p99), count(row.count)});
  return table.text(look);
}

}  // namespace

Result<LiveSnapshot> read_snapshot(std::string_view metrics, std::string_view stats,
                                   double time_s) {
  LiveSnapshot snapshot;
  snapshot.time_s = time_s;
  SWITCHYARD_ASSIGN(snapshot.metrics, Exposition::parse(metrics));
  SWITCHYARD_ASSIGN(snapshot.stats, parse_json(stats, "/v1/moe/stats"));
  for (const Json& layer : array(snapshot.stats, "layers"))
    for (const Json& picks : array(layer, "load"))
      if (!picks.is_number())
        return fail(Code::bad_file, "/v1/moe/stats: expected numbers in 'load', found {}",
                    json_text(picks));
  const Json* const object = snapshot.stats.find("object");
  if (object == nullptr || !object->is_string() || object->as_string() != "moe.stats")
    return fail(Code::bad_file,
                "/v1/moe/stats: expected an object \"moe.stats\": is this a Switchyard server?");
  return snapshot;
}

bool LiveSnapshot::continues(const LiveSnapshot& earlier) const {
  return number(stats, "start_time") == number(earlier.stats, "start_time") &&
         number(stats, "steps") >= number(earlier.stats, "steps");
}

LiveView make_live_view(const LiveSnapshot& now, const LiveSnapshot* before,
                        const LiveSnapshot* rates_from) {
  LiveView view;
  view.model = model_text(now);
  view.all_time = before == nullptr;
  const auto rate = [&](const char* name) {
    if (rates_from == nullptr || now.time_s <= rates_from->time_s) return kUnknown;
    return std::max(now.metrics.sum(name) - rates_from->metrics.sum(name), 0.0) /
           (now.time_s - rates_from->time_s);
  };
  if (rates_from != nullptr) view.seconds = now.time_s - rates_from->time_s;
  view.output_per_s = rate("switchyard_generation_tokens_total");
  view.prompt_per_s = rate("switchyard_prompt_tokens_total");
  view.running = now.metrics.sum("switchyard_requests_running");
  view.waiting = now.metrics.sum("switchyard_requests_waiting");
  view.kv_usage = now.metrics.sum("switchyard_kv_cache_usage_ratio");
  view.finished = now.metrics.sum("switchyard_requests_finished_total");
  view.rejected = now.metrics.sum("switchyard_requests_rejected_total");
  view.capacity_factor = now.metrics.sum("switchyard_capacity_factor_ratio");
  const double now_steps = number(now.stats, "steps");
  const double before_steps = before != nullptr ? number(before->stats, "steps") : 0;
  view.steps = now_steps - before_steps;
  view.step_s = number(now.stats, "step_seconds") -
                (before != nullptr ? number(before->stats, "step_seconds") : 0);
  const Json::Array& layers = array(now.stats, "layers");
  const Json::Array* const early = before != nullptr ? &array(before->stats, "layers") : nullptr;
  for (size_t l = 0; l < layers.size(); ++l)
    view.layers.push_back(
        layer_between(layers[l], early != nullptr && l < early->size() ? &(*early)[l] : nullptr));
  add_phases(view, now, before);
  for (const auto& [name, family] : kLatencies) {
    Buckets buckets = buckets_of(now.metrics, family);
    if (before != nullptr) buckets = buckets.since(buckets_of(before->metrics, family));
    const auto& bounds = buckets.bounds;  // the last one is infinite
    const double first = bounds.empty() ? 0 : bounds.front();
    const double last = bounds.size() > 1 ? bounds[bounds.size() - 2] : kUnknown;
    view.latencies.push_back({name, buckets.quantile(0.5), buckets.quantile(0.95),
                              buckets.quantile(0.99), buckets.count(), first, last});
  }
  return view;
}

double LiveView::mean_imbalance() const {
  double sum = 0;
  int busy = 0;
  for (const LiveLayer& layer : layers)
    if (std::isfinite(layer.imbalance)) sum += layer.imbalance, ++busy;
  return busy == 0 ? kUnknown : sum / busy;
}

double LiveView::worst_imbalance() const {
  double worst = kUnknown;
  for (const LiveLayer& layer : layers) worst = std::fmax(worst, layer.imbalance);
  return worst;
}

double LiveView::drop_rate() const {
  double picks = 0, dropped = 0;
  for (const LiveLayer& layer : layers) picks += layer.picks, dropped += layer.dropped;
  return picks > 0 ? dropped / picks : 0;
}

std::string live_view_text(const LiveView& view, std::string_view url, const Look& look, int rows) {
  const std::string span =
      view.all_time ? "since the server's start" : fmt::format("last {:.0f} s", view.seconds);
  const std::string head = fmt::format("{}  {}", printable(url), printable(view.model));
  return styled(look.terminal ? clip(head, look.columns) : head, Style::bold, look) + "\n" +
         styled(fmt::format("{}, {} steps", span, count(view.steps)), Style::dim, look) + "\n\n" +
         numbers_text(view, look) + "\n" + layers_text(view, look, rows) + "\n" +
         latencies_text(view, look) + "\n" + phases_text(view, look);
}

void write_live_view(JsonWriter& json, const LiveView& view, std::string_view url) {
  json.begin_object().field("url", url).field("model", view.model);
  json.field("since_start", view.all_time).field("rate_seconds", view.seconds);
  json.field("output_tokens_per_second", view.output_per_s);
  json.field("prompt_tokens_per_second", view.prompt_per_s);
  json.field("running", view.running).field("waiting", view.waiting);
  json.field("finished", view.finished).field("rejected", view.rejected);
  json.field("kv_cache_usage", view.kv_usage).field("capacity_factor", view.capacity_factor);
  json.field("steps", view.steps).field("step_seconds", view.step_s);
  json.field("imbalance_mean", view.mean_imbalance());
  json.field("imbalance_worst_layer", view.worst_imbalance()).field("drop_rate", view.drop_rate());
  json.key("layers").begin_array();
  for (const LiveLayer& layer : view.layers) {
    json.begin_object().field("picks", layer.picks).field("dropped", layer.dropped);
    json.field("imbalance", layer.imbalance).field("experts_touched", layer.touched);
    json.key("load").begin_array();
    for (const double picks : layer.load) json.real(picks);
    json.end_array().end_object();
  }
  json.end_array().key("latencies").begin_array();
  for (const LatencyRow& row : view.latencies)
    json.begin_object()
        .field("name", row.name)
        .field("p50_s", row.p50)
        .field("p95_s", row.p95)
        .field("p99_s", row.p99)
        .field("count", row.count)
        .end_object();
  json.end_array().key("phases").begin_array();
  for (const auto& [name, seconds] : view.phases)
    json.begin_object().field("name", name).field("seconds", seconds).end_object();
  json.end_array().end_object();
}

}  // namespace switchyard::cli
