// SPDX-License-Identifier: Apache-2.0
#include "client/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace switchyard::client {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], at - static_cast<double>(low));
}

/// The samples that become spreads.
struct Samples {
  std::vector<double> first_event, ttft, tpot, gaps, e2e, late;
};

void push_if_any(std::vector<double>& values, double value) {
  if (value >= 0) values.push_back(value);
}

void add_answered(const Outcome& outcome, const Slo& slo, Samples& samples, Summary& summary) {
  const Latencies at = latencies_of(outcome);
  ++summary.answered;
  summary.without_usage += outcome.has_usage ? 0 : 1;
  summary.without_text += outcome.first_text_ns == 0 ? 1 : 0;
  summary.good += keeps(slo, at) ? 1 : 0;
  summary.input_tokens += outcome.prompt_tokens;
  summary.output_tokens += outcome.tokens();
  push_if_any(samples.first_event, at.first_event_s);
  push_if_any(samples.ttft, at.ttft_s);
  push_if_any(samples.tpot, at.tpot_s);
  push_if_any(samples.e2e, at.e2e_s);
  samples.gaps.insert(samples.gaps.end(), outcome.gaps_s.begin(), outcome.gaps_s.end());
}

void add_failure(const Outcome& outcome, Summary& summary) {
  Failure& failure = summary.failures[outcome.failure];
  if (failure.count++ == 0) failure.example = outcome.detail;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  Spread spread;
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  spread.count = std::ssize(values);
  spread.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  spread.median = percentile(values, 0.5);
  spread.p90 = percentile(values, 0.9);
  spread.p99 = percentile(values, 0.99);
  spread.most = values.back();
  return spread;
}

Summary summarize(const Record& record, const Slo& slo) {
  Summary summary;
  Samples samples;
  summary.duration_s = static_cast<double>(record.end_ns - record.start_ns) * 1e-9;
  summary.peak_concurrency = record.peak_concurrency;
  summary.not_sent = record.not_sent;
  for (const int64_t events : record.text_events)
    summary.peak_events_per_s = std::max(summary.peak_events_per_s, events);
  for (const Outcome& outcome : record.outcomes) {
    samples.late.push_back(static_cast<double>(outcome.sent_ns - outcome.planned_ns) * 1e-9);
    summary.resent += outcome.resent ? 1 : 0;
    switch (outcome.end) {
      case Outcome::End::answered:
        add_answered(outcome, slo, samples, summary);
        break;
      case Outcome::End::cancelled:
        ++summary.cancelled;
        break;
      case Outcome::End::turned_away:
        ++summary.turned_away;
        add_failure(outcome, summary);
        break;
      case Outcome::End::failed:
        ++summary.failed;
        add_failure(outcome, summary);
        break;
    }
  }
  summary.first_event_s = spread_of(std::move(samples.first_event));
  summary.ttft_s = spread_of(std::move(samples.ttft));
  summary.tpot_s = spread_of(std::move(samples.tpot));
  summary.itl_s = spread_of(std::move(samples.gaps));
  summary.e2e_s = spread_of(std::move(samples.e2e));
  summary.late_s = spread_of(std::move(samples.late));
  return summary;
}

}  // namespace switchyard::client
