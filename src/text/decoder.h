// SPDX-License-Identifier: Apache-2.0
// Decoder: a chain of stages that turn tokens into text while they come.
// Kinds: ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace switchyard::text {

/// One stage at work on one text. What it makes goes to the next stage.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(std::string_view token) = 0;
  virtual void finish() = 0;
};

/// One stage as the file describes it; immutable.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual std::unique_ptr<DecodeStep> start(DecodeStep& next) const = 0;
};

/// The stages of a file, in order.
class Decoder {
 public:
  /// `json` may be null: then tokens are joined by spaces, as the reference does.
  static Result<Decoder> make(const Json* json, const std::string& where);

  /// Steps of which each feeds the next, the last one `sink`; the first one takes the tokens.
  std::vector<std::unique_ptr<DecodeStep>> start(DecodeStep& sink) const;

 private:
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace switchyard::text
