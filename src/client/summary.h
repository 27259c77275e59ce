// SPDX-License-Identifier: Apache-2.0
// Summary: the figures of a record. Latencies and tokens are of answered requests alone, as in vLLM's benchmark; the
// others are counted by kind.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/load.h"
#include "client/slo.h"

namespace switchyard::client {

/// Of a sample; percentiles by linear interpolation between the two nearest values. All 0 of an empty one.
struct Spread {
  int64_t count = 0;
  double mean = 0, median = 0, p90 = 0, p99 = 0, most = 0;
};
Spread spread_of(std::vector<double> values);

/// A kind of failure: how often, and what the first of them said.
struct Failure {
  int64_t count = 0;
  std::string example;
};

struct Summary {
  int64_t answered = 0, failed = 0, turned_away = 0, cancelled = 0;
  int64_t resent = 0;    ///< of all: their connection was closed under them
  int64_t not_sent = 0;  ///< of an open loop: no place for them before the time was over
  int64_t without_usage =
      0;  ///< of the answered: their tokens are events with text, prompts unknown
  int64_t without_text = 0;                 ///< of the answered
  std::map<std::string, Failure> failures;  ///< of failed and turned away, by kind
  double duration_s = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  int64_t peak_events_per_s = 0;  ///< events with text in the best second
  int peak_concurrency = 0;
  int64_t good = 0;                                    ///< kept the SLO
  Spread first_event_s, ttft_s, tpot_s, itl_s, e2e_s;  ///< itl_s over all gaps of all requests
  Spread late_s;  ///< from the turn of a request to its begin, of all requests

  double per_second(int64_t count) const {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  }
};

Summary summarize(const Record& record, const Slo& slo);

}  // namespace switchyard::client
