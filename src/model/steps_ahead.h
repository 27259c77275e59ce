// SPDX-License-Identifier: Apache-2.0
// When a device that can queue a step before the one at hand has ended should do so, and what came of it. Holds no device: model/cuda
// asks it (replay.cpp says what a step ahead is), tests ask it too. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "model/step.h"

namespace switchyard::model {

class StepsAhead {
 public:
  /// Steps in turn after one that others waited for and nobody wanted. Going ahead gains 2 % of a step or a little more
  /// (bench/results/notes-gpu-step.md), so a step lost is made up in some 50: with ends that come more often, most steps are in turn.
  static constexpr int kPauseAfterWaste = 32;
  /// And after one whose logits had to be made again because of it.
  static constexpr int kPauseAfterRepeat = 256;

  /// A step ahead is queued, and nobody has asked for it so far.
  bool queued() const noexcept { return queued_; }
  /// A step is asked for: the queued one (`known`), another one that decodes, which then waits for what was for nothing, or any other.
  void take(bool known, bool decodes) noexcept;
  /// Whether another step may follow one of so many sequences that began at begun_ns, and until when that can be left open: a time shortly
  /// before the end that is to be expected. No answer: not now. To be asked once a step.
  std::optional<int64_t> decide_by(int64_t begun_ns, int sequences) noexcept;
  void went() noexcept { queued_ = true; }
  /// Queueing failed: no step goes ahead from now on.
  void failed() noexcept;
  /// The step before the queued one had to be made again.
  void repeat() noexcept;
  /// After an error nothing is queued any more.
  void forget() noexcept { waste(); }
  /// A decode step of so many sequences took that long. A pause of the host's own counts little: steps seldom last longer than before.
  void learn(int sequences, int64_t took_ns);

  const AheadCounts& counts() const noexcept { return counts_; }

 private:
  void waste() noexcept;

  bool queued_ = false, works_ = true;
  int pause_ = 0;                    // steps until the next may be
  std::map<int, int64_t> usual_ns_;  // that a step lasts, by sequences
  AheadCounts counts_;
};

}  // namespace switchyard::model
