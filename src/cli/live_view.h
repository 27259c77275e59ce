// SPDX-License-Identifier: Apache-2.0
// What `switchyard stats URL` shows of a running server: two answers of /metrics and /v1/moe/stats, and what lies between
// them. The same numbers as the server's dashboard, in a terminal. Measures: docs/metrics.md.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/exposition.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/terminal.h"

namespace switchyard::cli {

/// One moment of a server.
struct LiveSnapshot {
  double time_s = 0;
  Exposition metrics;
  Json stats;  ///< of /v1/moe/stats, checked by read_snapshot()

  /// Whether one and the same server gave both, with nothing set back in between.
  bool continues(const LiveSnapshot& earlier) const;
};

/// Errors: bad_file when one of the texts is not what a server of this program answers.
Result<LiveSnapshot> read_snapshot(std::string_view metrics, std::string_view stats, double time_s);

struct LiveLayer {
  std::vector<double> load;  ///< [E] picks
  double picks = 0, dropped = 0;
  double imbalance = 0, touched = 0;  ///< means over the layer's steps; NaN when none has ended
};

struct LatencyRow {
  const char* name;
  double p50 = 0, p95 = 0, p99 = 0, count = 0;  ///< NaN when nothing came
  double least = 0,
         most = 0;  ///< first and last bound of its buckets: what lies beyond is not told apart
};

struct LiveView {
  std::string model;      ///< architecture and sizes
  double seconds = 0;     ///< between the answers; rates are over them
  bool all_time = false;  ///< layers, phases and latencies are those since the server's start
  double output_per_s = 0, prompt_per_s = 0;
  double running = 0, waiting = 0, kv_usage = 0, finished = 0, rejected = 0;
  double capacity_factor = 0;
  double steps = 0, step_s = 0;  ///< seconds inside them
  std::vector<LiveLayer> layers;
  std::vector<std::pair<std::string, double>> phases;  ///< seconds, longest first
  std::vector<LatencyRow> latencies;

  double mean_imbalance() const;   ///< of the layers with steps; NaN: there are none
  double worst_imbalance() const;  ///< likewise
  double drop_rate() const;        ///< 0 without picks
};

/// `before` null: everything since the start, rates unknown (NaN). The rates come from `rates_from`, which may be another.
/// Both must be of the server that `now` is of: see continues().
LiveView make_live_view(const LiveSnapshot& now, const LiveSnapshot* before,
                        const LiveSnapshot* rates_from);

/// At most look.columns wide on a terminal; at most `rows` lines of layers (0: all).
std::string live_view_text(const LiveView& view, std::string_view url, const Look& look, int rows);
void write_live_view(JsonWriter& json, const LiveView& view, std::string_view url);

}  // namespace switchyard::cli
