// SPDX-License-Identifier: Apache-2.0
// TextStream: from token ids to text that is certain: whole characters, and no part of a stop string.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/stop_matcher.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops,
             bool include_stop = false, const text::DecodeOptions& options = {})
      : decoding_(tokenizer.start_decoding(options)), stops_(std::move(stops), include_stop) {
    piece_.reserve(kPieceBytes);
  }

  /// More than the text of any usual token, so that a warm step does not allocate for a long one.
  static constexpr size_t kPieceBytes = 256;

  /// Appends to `out` the text that this token makes certain. True when a stop string is complete.
  bool push(int32_t token, std::string& out) {
    piece_.clear();
    decoding_->push(token, piece_);
    return stops_.push(piece_, out);
  }

  /// No more tokens: appends what was held back. True when that completes a stop string.
  bool finish(std::string& out) {
    piece_.clear();
    decoding_->finish(piece_);
    if (stops_.push(piece_, out)) return true;
    stops_.finish(out);
    return false;
  }

 private:
  std::unique_ptr<text::Decoding> decoding_;
  StopMatcher stops_;
  std::string piece_;  // reused from token to token
};

}  // namespace switchyard::engine
