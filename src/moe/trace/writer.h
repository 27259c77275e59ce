// SPDX-License-Identifier: Apache-2.0
// Writes a routing trace (format.h), step by step, into a file that appears when it is finished.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "moe/trace/format.h"

namespace switchyard::moe {

/// One step to write. Borrowed during the call.
struct TraceStepData {
  int64_t num_tokens = 0;  ///< T
  TraceStage stage = TraceStage::prefill;
  std::span<const TraceSequence> sequences;  ///< [B], tokens sum to T
  std::span<const uint32_t> demand;          ///< [L, E]
  std::span<const uint32_t> dropped;         ///< [L]
  std::span<const float> weights;            ///< [L, T, K]; empty without picks
  std::span<const uint16_t> picks;           ///< [L, T, K]; empty without picks
};

class TraceWriter {
 public:
  /// Errors: bad_request (sizes beyond the format's, a path that cannot be written), out_of_memory.
  static Result<TraceWriter> create(const std::string& path, const TraceHeader& header);

  /// The number of a topic; a new one is written at its first use. Errors: bad_request for a label
  /// that the format does not take, and those of writing.
  Result<int32_t> topic(std::string_view label);
  Status append(const TraceStepData& step);
  /// Writes the end and gives the file its name. Without it, nothing is left behind.
  Status finish();

  const TraceHeader& header() const noexcept { return header_; }
  int64_t num_steps() const noexcept { return num_steps_; }
  int64_t num_tokens() const noexcept { return num_tokens_; }

 private:
  Status write_block(uint32_t kind, std::span<const std::span<const std::byte>> parts);

  TraceHeader header_;
  FileWriter file_;
  std::vector<std::string> topics_;
  int64_t num_steps_ = 0, num_tokens_ = 0;
};

}  // namespace switchyard::moe
