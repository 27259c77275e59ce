// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace switchyard::engine {
namespace {

struct Match {
  size_t begin = std::string_view::npos, end = std::string_view::npos;
};

/// The first complete stop string of `text`; begin is npos when there is none.
Match find_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t begin = std::string_view::npos, end = std::string_view::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string_view::npos) continue;
    if (at + stop.size() > end || (at + stop.size() == end && at > begin)) continue;
    begin = at;
    end = at + stop.size();
  }
  return {begin, end};
}

/// Length of the longest end of `text` that begins a stop string without completing it.
size_t unfinished_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > longest; --length) {
      if (text.substr(text.size() - length) != std::string_view(stop).substr(0, length)) continue;
      longest = length;
      break;
    }
  }
  return longest;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  held_.reserve(256);  // more than any usual token: a warm step does not allocate
  for (const std::string& stop : stops_) SWITCHYARD_CHECK(!stop.empty(), "empty stop string");
}

bool StopMatcher::push(std::string_view piece, std::string& out) {
  if (stops_.empty()) {
    out.append(piece);
    return false;
  }
  held_.append(piece);
  const Match stop = find_stop(held_, stops_);
  if (stop.begin != std::string::npos) {
    out.append(held_, 0, include_stop_ ? stop.end : stop.begin);
    held_.clear();
    return true;
  }
  const size_t certain = held_.size() - unfinished_stop(held_, stops_);
  out.append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace switchyard::engine
