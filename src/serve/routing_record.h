// SPDX-License-Identifier: Apache-2.0
// RoutingRecord: the load of experts while it is recorded, in windows of steps: what POST /v1/moe/record/* starts, stops
// and dumps, and `switchyard plan` and `stats` read.
//
// Memory is bounded however long it runs: [windows, L, E] counts of 8 bytes, L MoE layers, E experts, at most 64 windows.
// When there is no room for another, neighbours are added and windows are twice as long from then on.
//
// The dump is one JSON object:
//   format        "switchyard-expert-load"        version      1
//   model, model_hash, producer                    names for people; of which model it is
//   num_moe_layers, num_experts, top_k             L, E, K
//   stage         "all", or the kind of steps that were counted: "prefill", "decode", "mixed"
//   steps, tokens                                  what was counted
//   dropped       [L]        picks without a place
//   counts        [L][E]     picks of each expert, before any drop: the sum over the windows
//   windows       [{steps, tokens, counts [L][E]}] in order
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/engine.h"
#include "switchyard/routing.h"

namespace switchyard::serve {

inline constexpr const char* kExpertLoadFormat = "switchyard-expert-load";
inline constexpr int kExpertLoadVersion = 1;

class RoutingRecord {
 public:
  static constexpr size_t kMostWindows = 64;  // even

  struct State {
    bool recording = false, any = false;  ///< any: something was recorded since the program began
    int64_t steps = 0, tokens = 0;
    const char* stage = "all";
  };

  /// "all" or a stage's name; anything else is nothing.
  static std::optional<std::string_view> known_stage(std::string_view name);

  /// Forgets what was before. False when it is recording already. Any thread, as all of these.
  bool start(std::string_view stage);
  /// False when it is not recording.
  bool stop();
  State state() const;
  /// One relaxed load: what the engine asks before each step.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  /// A step of the engine's loop; ignored unless it is recording, and of another kind than is recorded.
  void push(const RoutedStep& step);
  std::string dump(const ModelSummary& summary, std::string_view model,
                   std::string_view model_hash) const;

 private:
  struct Window {
    int64_t steps = 0, tokens = 0;
    std::vector<uint64_t> counts;  // [L, E]
  };

  Window& current();
  void add(Window& window, const RoutedStep& step);

  std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  bool any_ = false;
  std::string_view stage_ = "all";
  int64_t steps_ = 0, tokens_ = 0;
  int64_t window_steps_ = 1;  // of a full one
  size_t num_experts_ = 0;
  std::vector<Window> windows_;
  std::vector<uint64_t> dropped_;  // [L]
};

}  // namespace switchyard::serve
