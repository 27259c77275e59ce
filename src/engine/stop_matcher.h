// SPDX-License-Identifier: Apache-2.0
// StopMatcher: finds stop strings in a text that arrives in pieces, and never lets out a part of
// one.
//
// The match that ends first wins; of two that end together, the longer. So the result does not
// depend on how tokens cut the text. Held back is the longest end of the text that could still
// become a stop string. Pieces and stop strings are whole UTF-8, hence so is all that comes out: a
// stop string can only begin where a character begins.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::engine {

class StopMatcher {
 public:
  StopMatcher() = default;
  /// None of the strings may be empty.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  /// Appends to `out` what has become certain. True when a stop string is complete: then the text
  /// before it is out, and itself if it is to be included, and nothing may be pushed again.
  bool push(std::string_view piece, std::string& out);
  /// No more text: what was held back is certain now.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  bool include_stop_ = false;
  std::string held_;  // the end of the text: a proper beginning of some stop string
};

}  // namespace switchyard::engine
