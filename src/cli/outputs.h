// SPDX-License-Identifier: Apache-2.0
// Outputs: collects the events of several requests from the loop thread, and lets the main thread
// follow them.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/request.h"

#include "base/json.h"

namespace switchyard::cli {

/// What one request has given so far.
struct Output {
  std::string text;
  std::vector<int32_t> tokens;
  std::optional<Event> last;  ///< the last event, when it has come
};

class Outputs {
 public:
  explicit Outputs(size_t count) : outputs_(count) {}

  /// Loop thread: one event of request `index`. Never blocks on what the main thread does.
  void push(size_t index, const Event& event);

  /// Main thread: waits until request `index` has more text than `seen` bytes or has ended, then
  /// gives the new text.
  std::string wait_for_text(size_t index, size_t seen);
  bool ended(size_t index) const;
  /// Only when it has ended: nobody writes any more.
  const Output& at(size_t index) const { return outputs_[index]; }
  size_t size() const noexcept { return outputs_.size(); }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Output> outputs_;
};

/// One object: prompt_ids, output_ids, text, finish_reason, timings, moe.
void write_output(JsonWriter& json, const Output& output);

/// "12 prompt tokens at 340/s, 64 tokens at 41/s, stop"
std::string timing_text(const Output& output);

}  // namespace switchyard::cli
