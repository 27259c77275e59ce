// SPDX-License-Identifier: Apache-2.0
// RequestRecord: what is known of one request when its answer has left, for the log and the metrics. Never what it said.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "switchyard/request.h"

namespace switchyard::serve {

/// What a call that generates adds. Written under its generation's lock, before its answer ends.
struct CallRecord {
  int choices = 0;  ///< 0: the request was no such call, or was refused before it was one
  bool stream = false;
  int64_t prompt_tokens = 0, output_tokens = 0;
  std::optional<int64_t> cached_tokens;  ///< of the choices that ended by themselves
  std::optional<double> queue_s;         ///< of the choice that waited longest; none began: nothing
  int64_t first_token_ns = 0;            ///< now_ns(), of the first of any choice; 0: none came
  FinishReason finish = FinishReason::none;  ///< of the last choice that ended
  std::string error;                         ///< the code of the error that it was answered with
  std::optional<double> experts_touched;  ///< mean over layers, of all choices; when the call asked
};

struct RequestRecord {
  std::string id;                   ///< x-request-id
  const char* route = "unmatched";  ///< a path of the table, never the client's text
  const char* method = "other";
  int status = 0;         ///< 0: the client went before there was one
  bool complete = false;  ///< the whole answer was handed to the connection
  int64_t received_ns = 0;
  double response_start_s = 0, total_s = 0;  ///< from received_ns
  CallRecord call;
};

}  // namespace switchyard::serve
