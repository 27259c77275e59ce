// SPDX-License-Identifier: Apache-2.0
// Reads a routing trace (format.h). Everything is checked when it is opened, checksums included, so
// that what comes after cannot fail; steps are views into the mapped file.
//
//   SWITCHYARD_ASSIGN(const TraceReader trace, TraceReader::open("chat.swt"));
//   for (int64_t i = 0; i < trace.num_steps(); ++i)
//     for (int layer = 0; layer < trace.header().num_layers; ++layer)
//       use(trace.step(i).demand(layer));
//
// Memory: 8 bytes a step and the topics, both bounded by the file. Errors: Code::bad_file, or
// unsupported for a later version, with the offset, what was found and what was expected.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "moe/trace/format.h"

namespace switchyard::moe {

/// One step. Borrowed from its trace.
class TraceStep {
 public:
  /// A checked payload of a STEP block.
  TraceStep(const TraceHeader& header, const std::byte* payload)
      : header_(&header), payload_(payload) {}

  int64_t num_tokens() const noexcept;  ///< T
  TraceStage stage() const noexcept;
  std::span<const TraceSequence> sequences() const noexcept;  ///< [B], in token order
  /// [E] picks of each expert before any drop.
  std::span<const uint32_t> demand(int layer) const noexcept;
  uint32_t dropped(int layer) const noexcept;
  /// [T, K] experts, kDroppedPick where dropped; empty when the trace holds no picks.
  std::span<const uint16_t> picks(int layer) const noexcept;
  /// [T, K]; empty when the trace holds no picks.
  std::span<const float> weights(int layer) const noexcept;

 private:
  const std::byte* demand_at() const noexcept;
  const std::byte* weights_at() const noexcept;
  int64_t layer_picks() const noexcept { return num_tokens() * header_->top_k; }

  const TraceHeader* header_;
  const std::byte* payload_;
};

/// A trace in memory that someone else owns, for tests and fuzzing; see TraceReader.
class TraceView {
 public:
  /// Checks all of `file`, whose first byte lies at a multiple of 8. `name` starts every message.
  static Result<TraceView> parse(std::span<const std::byte> file, std::string_view name);

  const TraceHeader& header() const noexcept { return header_; }
  const std::vector<std::string>& topics() const noexcept { return topics_; }
  int64_t num_steps() const noexcept { return static_cast<int64_t>(step_at_.size()); }
  int64_t num_tokens() const noexcept { return num_tokens_; }  ///< sum of T
  TraceStep step(int64_t index) const;

 private:
  friend class TraceParser;
  std::span<const std::byte> file_;
  TraceHeader header_;
  std::vector<std::string> topics_;
  std::vector<uint64_t> step_at_;  // offsets of payloads
  int64_t num_tokens_ = 0;
};

class TraceReader {
 public:
  static Result<TraceReader> open(const std::string& path);

  const TraceHeader& header() const noexcept { return view_.header(); }
  const std::vector<std::string>& topics() const noexcept { return view_.topics(); }
  int64_t num_steps() const noexcept { return view_.num_steps(); }
  int64_t num_tokens() const noexcept { return view_.num_tokens(); }
  /// Valid while this reader is, and stays where it is.
  TraceStep step(int64_t index) const { return view_.step(index); }
  const TraceView& view() const noexcept { return view_; }

 private:
  MappedFile file_;
  TraceView view_;
};

}  // namespace switchyard::moe
