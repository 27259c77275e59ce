// SPDX-License-Identifier: Apache-2.0
// What `switchyard stats` says about a routing trace, as a table, as JSON, and as the data of its
// figure. The measures are defined in docs/metrics.md and computed in moe/trace.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal.h"
#include "moe/trace/coactivation.h"
#include "moe/trace/measures.h"
#include "moe/trace/reader.h"
#include "moe/trace/topics.h"

namespace switchyard::cli {

struct TraceReportOptions {
  int num_windows = 8;               ///< of the drift
  std::vector<int64_t> batch_sizes;  ///< of tokens dealt anew
};

/// Tokens dealt anew into batches of one size; all values are means over batches, then layers.
struct BatchRow {
  int64_t batch = 0, num_batches = 0;
  double across = 0, along = 0;      ///< measured imbalance, see moe::BatchOrder
  double expected = 0, uniform = 0;  ///< closed forms: measured popularity, uniform popularity
  double touched = 0, expected_touched = 0;  ///< across requests
};

struct TraceReport {
  std::string path;
  moe::TraceHeader header;
  int64_t num_steps = 0, num_tokens = 0;
  moe::TraceMeasures measures;
  moe::Drift drift;
  moe::TopicSkew topics;
  // Empty without picks.
  std::vector<BatchRow> batches;
  std::vector<std::vector<moe::ExpertPair>> pairs;  ///< [layer]; empty for too many experts too
};

/// The trace must hold at least one step.
TraceReport make_trace_report(const moe::TraceView& trace, const TraceReportOptions& options);

std::string trace_report_text(const TraceReport& report, const Look& look);
void write_trace_report(JsonWriter& json, const TraceReport& report);

}  // namespace switchyard::cli
