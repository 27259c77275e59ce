// SPDX-License-Identifier: Apache-2.0
// Outcome: what became of one request. Moments are of now_ns(); 0: it did not come to that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace switchyard::client {

struct Outcome {
  enum class End : uint8_t {
    answered,     ///< to its finish_reason
    cancelled,    ///< by us, as planned
    turned_away,  ///< 429: the server said no before it did anything
    failed,
  };
  End end = End::failed;
  /// Its kind, the same for the same cause: "http 500 internal_error", "cut", "malformed event". Empty unless turned away
  /// or failed.
  std::string failure;
  std::string detail;   ///< what a person wants to know of it
  bool resent = false;  ///< its kept connection was closed under it, at once: it went out twice
  double retry_after_s = 0;

  int64_t planned_ns =
      0;                ///< when its turn was: latencies count from here, however late it was sent
  int64_t sent_ns = 0;  ///< when it began, connecting included
  int64_t first_event_ns = 0, first_text_ns = 0, last_text_ns = 0, ended_ns = 0;
  int64_t last_choice_ns = 0;  ///< the last event that had a choice, with text or without
  std::vector<float> gaps_s;   ///< between events with text

  int64_t prompt_tokens = 0, output_tokens = 0;  ///< of the server's usage, if it told
  bool has_usage = false;
  int64_t text_events = 0;

  int64_t tokens() const noexcept { return has_usage ? output_tokens : text_events; }
};

}  // namespace switchyard::client
