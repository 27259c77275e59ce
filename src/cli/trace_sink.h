// SPDX-License-Identifier: Apache-2.0
// TraceSink: writes the routings that an engine gives out as a trace file. The engine's loop thread
// gives steps; when it has ended its requests, the main thread finishes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/routing.h"

#include "base/result.h"
#include "moe/trace/writer.h"

namespace switchyard::cli {

class TraceSink {
 public:
  /// Starts the file: from now on steps are kept. Errors: those of TraceWriter::create.
  Status open(const std::string& path, const moe::TraceHeader& header);

  /// One step. After a failure steps are ignored, and finish() tells it.
  void push(const RoutedStep& step);
  /// Gives the file its name.
  Status finish();

  int64_t num_steps() const noexcept { return writer_ ? writer_->num_steps() : 0; }
  int64_t num_tokens() const noexcept { return writer_ ? writer_->num_tokens() : 0; }

 private:
  Status write(const RoutedStep& step);
  Status add_sequences(const RoutedStep& step);
  Status add_layer(const RoutedLayer& layer, int64_t tokens);

  std::optional<moe::TraceWriter> writer_;
  Status status_;
  // Of one step; reused.
  std::vector<moe::TraceSequence> sequences_;
  std::vector<uint32_t> demand_, dropped_;
  std::vector<float> weights_;
  std::vector<uint16_t> picks_;
};

}  // namespace switchyard::cli
