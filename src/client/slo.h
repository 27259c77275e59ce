// SPDX-License-Identifier: Apache-2.0
// Slo: what a request must keep to count as good.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/outcome.h"

namespace switchyard::client {

/// Milliseconds; 0: no limit.
struct Slo {
  double ttft_ms = 0, tpot_ms = 0, itl_ms = 0, e2e_ms = 0;
  bool empty() const noexcept { return ttft_ms + tpot_ms + itl_ms + e2e_ms == 0; }
};

/// "ttft:200,itl:50", of ttft, tpot, itl and e2e. Errors: Code::bad_request.
Result<Slo> parse_slo(std::string_view text);

/// Seconds of one answered request, from when its turn was; negative where there is none.
struct Latencies {
  double first_event_s = -1;
  double ttft_s = -1;  ///< to the first event with text
  double tpot_s =
      -1;  ///< from the first text to the last event with a choice, over the tokens after the first
  double itl_s = -1;  ///< mean gap between events with text
  double e2e_s = -1;
};
Latencies latencies_of(const Outcome& outcome);

/// Only for answered requests. Without any text, no time of texts is kept.
bool keeps(const Slo& slo, const Latencies& latencies);

}  // namespace switchyard::client
