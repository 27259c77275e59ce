// SPDX-License-Identifier: Apache-2.0
// Positions: where a text may stand in a grammar. One position is the set of all (state, stack) that its bytes lead to; the
// sets, and the steps between them, are made when they are met first and remembered: a deterministic automaton that grows.
//
//   frame     one open call: the state to go on at, the frame below. Equal stacks are one number.
//   peak      the largest depth + height that was considered on the way here; while a peak stays within kMaxDepth, nothing
//             was held back for depth, and so the same happens on any stack that is low enough
//   cost      a step that is remembered: two loads; else O(states in the set)
// One thread at a time.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/network.h"

namespace switchyard::grammar {

class Positions {
 public:
  /// What is ambiguous beyond this many ways follows the first ones: less is accepted, never more.
  static constexpr size_t kMaxThreads = 256;
  static constexpr int32_t kDead = 0;     ///< nothing goes on
  static constexpr int32_t kTooDeep = 1;  ///< nothing goes on within kMaxDepth
  static constexpr int32_t kNoFrame = 0;  ///< the stack is empty

  struct Thread {
    int32_t state = 0, frame = 0;
    // NOLINTNEXTLINE(modernize-use-nullptr)
    auto operator<=>(const Thread&) const = default;
  };

  explicit Positions(const Network& network);

  int32_t start() const noexcept { return start_; }
  int32_t step(int32_t position, uint8_t byte);
  /// The position of one thread.
  int32_t at(Thread thread);
  /// The text may end here.
  bool ends(int32_t position) const { return list_[index(position)].ends; }
  std::span<const Thread> threads(int32_t position) const { return list_[index(position)].threads; }
  int peak(int32_t position) const { return list_[index(position)].peak; }

  int depth(int32_t frame) const { return frames_[index(frame)].depth; }
  /// The thread behind the call of a frame.
  Thread returned(int32_t frame) const {
    return {frames_[index(frame)].back, frames_[index(frame)].below};
  }

  const Network& network() const noexcept { return network_; }
  /// Threads that were looked at because nothing was remembered; and about how much is remembered.
  int64_t work() const noexcept { return work_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  struct Position {
    std::vector<Thread> threads;  // sorted; of states that read bytes
    std::vector<int32_t> next;    // [classes] or empty; -1: not met yet
    bool ends = false;
    int peak = 0;
  };
  struct Frame {
    int32_t back = 0, below = 0;
    int16_t depth = 0;
  };

  static size_t index(int32_t number) { return static_cast<size_t>(number); }
  void reach(Thread thread);
  void call(const Thread& from, const CallEdge& edge);
  int32_t frame(int32_t back, int32_t below);
  int32_t close_and_find();
  int32_t find(std::vector<Thread> threads, bool ends, int peak);

  const Network& network_;
  std::vector<Position> list_;
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, int32_t> frame_of_;  // back and below -> frame
  std::vector<Thread> reached_;                     // of the step that runs
  int peak_ = 0;
  int64_t work_ = 0;
  size_t bytes_ = 0;
  int32_t start_ = 0;
};

}  // namespace switchyard::grammar
