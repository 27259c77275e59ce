// SPDX-License-Identifier: Apache-2.0
#include "serve/vllm_metrics.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/exposition.h"

namespace switchyard::serve {
namespace {

struct Twin {
  const char* name;  ///< after "vllm:"
  const char* ours;
  const char* type;
};

constexpr Twin kSums[] = {
    {"num_requests_running", "switchyard_requests_running", "gauge"},
    {"num_requests_waiting", "switchyard_requests_waiting", "gauge"},
    {"kv_cache_usage_perc", "switchyard_kv_cache_usage_ratio", "gauge"},
    {"num_preemptions_total", "switchyard_preemptions_total", "counter"},
    {"prompt_tokens_total", "switchyard_prompt_tokens_total", "counter"},
    {"generation_tokens_total", "switchyard_generation_tokens_total", "counter"},
    {"prefix_cache_queries_total", "switchyard_prefix_cache_query_tokens_total", "counter"},
    {"prefix_cache_hits_total", "switchyard_prefix_cache_hit_tokens_total", "counter"},
};
constexpr Twin kHistograms[] = {
    {"time_to_first_token_seconds", "switchyard_time_to_first_token_seconds", "histogram"},
    {"inter_token_latency_seconds", "switchyard_inter_token_latency_seconds", "histogram"},
    {"e2e_request_latency_seconds", "switchyard_request_duration_seconds", "histogram"},
    {"request_queue_time_seconds", "switchyard_request_queue_seconds", "histogram"},
    {"request_prefill_time_seconds", "switchyard_request_prefill_seconds", "histogram"},
    {"request_decode_time_seconds", "switchyard_request_decode_seconds", "histogram"},
};

class Writer {
 public:
  Writer(const Exposition& ours, std::string_view model) : ours_(ours) {
    std::string name;
    for (const char c : model) {
      if (c == '\\' || c == '"') name += '\\';
      name += c == '\n' ? ' ' : c;
    }
    labels_ = fmt::format("model_name=\"{}\",engine=\"0\"", name);
  }

  void sum(const Twin& twin) {
    const MetricFamily* const family = ours_.find(twin.ours);
    if (family == nullptr) return;
    head(twin, family->help);
    add("vllm:{}{{{}}} {}\n", twin.name, labels_, ours_.sum(twin.ours));
  }

  void histogram(const Twin& twin) {
    const MetricFamily* const family = ours_.find(twin.ours);
    if (family == nullptr) return;
    head(twin, family->help);
    const Buckets buckets = buckets_of(ours_, twin.ours);
    for (size_t i = 0; i < buckets.bounds.size(); ++i) {
      const double bound = buckets.bounds[i];
      const std::string le = std::isinf(bound) ? "+Inf" : fmt::format("{}", bound);
      add("vllm:{}_bucket{{{},le=\"{}\"}} {}\n", twin.name, labels_, le, buckets.counts[i]);
    }
    add("vllm:{}_sum{{{}}} {}\n", twin.name, labels_, buckets.sum);
    add("vllm:{}_count{{{}}} {}\n", twin.name, labels_, buckets.count());
  }

  void finished() {
    constexpr const char* kOurs = "switchyard_requests_finished_total";
    constexpr std::pair<const char*, const char*> kReasons[] = {
        {"stop", "stop"}, {"length", "length"}, {"abort", "cancelled"}, {"error", "error"}};
    const MetricFamily* const family = ours_.find(kOurs);
    if (family == nullptr) return;
    head({"request_success_total", kOurs, "counter"}, family->help);
    for (const auto& [theirs, reason] : kReasons)
      add("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_, theirs,
          ours_.sum(kOurs, {{"finish_reason", reason}}));
  }

  std::string take() { return std::move(out_); }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void head(const Twin& twin, std::string_view help) {
    add("# HELP vllm:{} {}\n# TYPE vllm:{} {}\n", twin.name, help, twin.name, twin.type);
  }

  const Exposition& ours_;
  std::string labels_, out_;
};

}  // namespace

std::string vllm_metrics(std::string_view exposition, std::string_view model_name) {
  const auto ours = Exposition::parse(exposition);
  if (!ours.ok()) return {};
  Writer writer(*ours, model_name);
  for (const Twin& twin : kSums) writer.sum(twin);
  for (const Twin& twin : kHistograms) writer.histogram(twin);
  writer.finished();
  return writer.take();
}

}  // namespace switchyard::serve
