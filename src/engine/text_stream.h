// SPDX-License-Identifier: Apache-2.0
// TextStream: from token ids to text that is certain: whole characters, and no part of a stop
// string.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/stop_matcher.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// Appends to `out` the text that this token makes certain. True when a stop string is complete.
  bool push(int32_t token, std::string& out) { return stops_.push(decoder_.push(token), out); }

  /// No more tokens: appends what was held back. True when that completes a stop string.
  bool finish(std::string& out) {
    if (stops_.push(decoder_.finish(), out)) return true;
    stops_.finish(out);
    return false;
  }

 private:
  text::DecodeStream decoder_;
  StopMatcher stops_;
};

}  // namespace switchyard::engine
