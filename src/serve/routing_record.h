// SPDX-License-Identifier: Apache-2.0
// RoutingRecord: the load of experts while it is recorded, in windows of steps: what POST /v1/moe/record/* starts, stops
// and dumps, and `switchyard plan` and `stats` read.
//
// Memory is bounded however long it runs: [64 windows, L, E] counts of 8 bytes, L MoE layers, E experts, allocated when
// recording starts. When there is no room for another window, new ones are twice as long, and each takes the place of the
// oldest pair of neighbours that were not added yet: when all are, it begins anew.
//
// What it costs the engine's loop: nothing without a recording; with one, a lock and L x E additions a step, and once a
// window as many again. A dump holds the lock while it copies the counts, not while it writes its text.
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
  bool start(std::string_view stage, int moe_layers, int experts);
  /// False when it is not recording.
  bool stop();
  State state() const;
  /// One relaxed load: what the engine asks before each step.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  /// A step of the engine's loop; ignored unless it is recording, of the kind that is recorded, and of the sizes given.
  void push(const RoutedStep& step);
  std::string dump(const ModelSummary& summary, std::string_view model,
                   std::string_view model_hash) const;

 private:
  struct Window {
    size_t slot = 0;  // of counts
    int64_t steps = 0, tokens = 0;
  };
  /// All that a dump says, so that it can be copied in one piece.
  struct Recorded {
    std::string_view stage = "all";
    int64_t steps = 0, tokens = 0;
    size_t layers = 0, experts = 0;
    std::vector<Window> windows;    // in order of time
    std::vector<uint64_t> counts;   // [kMostWindows, L, E], by slot
    std::vector<uint64_t> dropped;  // [L]

    Recorded() = default;
    Recorded(std::string_view of_stage, size_t of_layers, size_t of_experts);
    size_t size() const { return layers * experts; }
    uint64_t* of(const Window& window) { return counts.data() + window.slot * size(); }
    const uint64_t* of(const Window& window) const { return counts.data() + window.slot * size(); }
  };

  bool fits(const RoutedStep& step) const;
  Window& current();
  void join_next_pair();
  void add(Window& window, const RoutedStep& step);
  Recorded copy() const;

  std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  bool any_ = false;
  int64_t window_steps_ = 1;  // of a full one
  size_t joined_ = 0;         // windows at the front that are as long as that
  Recorded now_;
};

}  // namespace switchyard::serve
