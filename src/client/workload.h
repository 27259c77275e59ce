// SPDX-License-Identifier: Apache-2.0
// Workload: which requests are sent, when, and which of them we leave. All drawn from a seed by the number of the request
// (Philox), so that a run can be repeated whatever the server does.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace switchyard::client {

enum class Endpoint : uint8_t { completions, chat };

/// Both ends are meant.
struct Range {
  int low = 0, high = 0;
};
/// "64", or "64:256" for a uniform draw. Errors: Code::bad_request.
Result<Range> parse_range(std::string_view text, std::string_view what);

struct Workload {
  Endpoint endpoint = Endpoint::completions;
  std::string model;
  std::vector<std::string> prompts;  ///< in turn; none: random token ids, for completions alone
  int vocab = 0;                     ///< of the random ids
  Range input_tokens{128, 128}, output_tokens{128, 128};
  double temperature = 0;
  bool ignore_eos = false;  ///< not of OpenAI's interface: sent only when asked for
  double cancel_rate = 0;   ///< share of requests that we leave before their end
  uint64_t seed = 0;
};

/// A request as drawn. `stream` tells apart the requests of the points of a sweep, and of the warm-up.
struct Drawn {
  std::string path, body;
  /// One of them is set for a request that we leave: half of those go within a second, the others after a number of
  /// events with text.
  double cancel_after_s = -1;
  int64_t cancel_at_text = -1;
};
Drawn draw_request(const Workload& workload, uint32_t stream, uint32_t index);
/// Seconds until the next arrival of a Poisson process.
double draw_gap_s(const Workload& workload, uint32_t stream, uint32_t index, double rate);

}  // namespace switchyard::client
