// SPDX-License-Identifier: Apache-2.0
// Load: a point of a sweep is played against a server and every outcome is kept.
//
// Closed loop: `concurrency` clients, each of which sends its next request when its last has ended; one that was turned away
// waits as long as the server's Retry-After said. Open loop: requests come as a Poisson process of `rate`, whatever the
// server does; `concurrency` then bounds how many are out at once (0: no bound), and who waits for that is late: latencies
// count from when the turn was. After a failure a closed loop pauses, from 50 ms to a second, so that a server that is gone
// is not hammered.
#pragma once
#include <cstdint>
#include <vector>

#include "client/outcome.h"
#include "client/target.h"
#include "client/workload.h"

namespace switchyard::client {

struct Point {
  int concurrency = 1;
  double rate = 0;           ///< requests a second; 0: closed loop
  int64_t num_requests = 0;  ///< 0: until `duration_s`
  double duration_s = 0;     ///< no request begins later; 0: no limit
  double timeout_s = 600;    ///< of one request
  uint32_t stream = 0;       ///< other points draw other requests
};

struct Record {
  std::vector<Outcome> outcomes;     ///< in the order of their ends
  int64_t start_ns = 0, end_ns = 0;  ///< first begin, last end
  int peak_concurrency = 0;
  int64_t not_sent = 0;  ///< their turn was, but the time was over before there was a place
  std::vector<int64_t> text_events;  ///< of each second since the start, of all requests
};

/// Errors: Code::unavailable when the host has no address.
Result<Record> play(const Target& target, const Workload& workload, const std::string& api_key,
                    const Point& point);

}  // namespace switchyard::client
