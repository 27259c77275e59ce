// SPDX-License-Identifier: Apache-2.0
// DropWatch: says once in the log that a capacity drops too many picks, and what would help.
//
// The rate is that of a window of steps, over all layers: single steps, above all of a few tokens,
// mean little. What a rate costs in quality, `switchyard bench quality` measures.
// Cost: a branch when dropless, else O(E) a layer in steps that drop; an allocation for the one message.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace switchyard::engine {

class DropWatch {
 public:
  static constexpr int kWindowSteps = 32;
  static constexpr double kMostDropped = 0.02;

  /// capacity_factor of the routers; 0: dropless.
  explicit DropWatch(float capacity_factor) : factor_(capacity_factor) {}

  bool can_drop() const noexcept { return factor_ > 0; }
  /// A layer of the step that runs: picks by expert before any drop, and how many were dropped.
  void add(std::span<const int32_t> demand, int64_t dropped);
  /// Warns when a window has ended badly, for the first time.
  void end_step();

 private:
  /// Factors that the advice may name.
  static constexpr std::array kFactors = {1.0f, 1.25f, 1.5f, 2.0f, 2.5f, 3.0f, 4.0f, 6.0f, 8.0f};

  void warn() const;

  float factor_;
  bool warned_ = false;
  // Of the window.
  int steps_ = 0;
  int64_t picks_ = 0, dropped_ = 0;
  std::array<int64_t, kFactors.size()> would_drop_{};  // with each of kFactors
};

}  // namespace switchyard::engine
