// SPDX-License-Identifier: Apache-2.0
#include "grammar/positions.h"

#include <algorithm>
#include <utility>

namespace switchyard::grammar {
namespace {

/// Ways that are looked at while one position is found.
constexpr size_t kMaxReached = 4 * Positions::kMaxThreads;

uint64_t pair_key(int32_t a, int32_t b) {
  return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
}

/// Fowler, Noll and Vo's hash over whole words, with a last mix.
uint64_t hash_of(const std::vector<Positions::Thread>& threads, bool ends, bool too_deep) {
  uint64_t hash = 0xCBF29CE484222325 + (ends ? 1 : 0) + (too_deep ? 2 : 0);
  for (const Positions::Thread thread : threads) {
    hash = (hash ^ pair_key(thread.state, thread.frame)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Positions::Positions(const Network& network) : network_(network) {
  frames_.emplace_back();
  find({}, false, 0);
  find({}, false, kMaxDepth + 1);
  start_ = at({network.root(), kNoFrame});
}

int32_t Positions::at(Thread thread) {
  reached_.clear();
  peak_ = 0;
  reach(thread);
  return close_and_find();
}

int32_t Positions::step(int32_t position, uint8_t byte) {
  const auto at_class = static_cast<size_t>(network_.class_of(byte));
  {
    std::vector<int32_t>& next = list_[index(position)].next;
    if (next.empty()) {
      next.assign(static_cast<size_t>(network_.num_classes()), -1);
      bytes_ += next.size() * sizeof(int32_t);
    }
    if (next[at_class] >= 0) return next[at_class];
  }
  reached_.clear();
  peak_ = 0;
  for (const Thread thread : list_[index(position)].threads) {
    const int depth_here = depth(thread.frame);
    for (const ByteEdge& edge : network_.state(thread.state).edges) {
      if (byte < edge.low || edge.high < byte) continue;
      const int need = depth_here + network_.state(edge.target).height;
      peak_ = std::max(peak_, need);
      if (need <= kMaxDepth) reach({edge.target, thread.frame});
    }
  }
  work_ += std::ssize(list_[index(position)].threads);
  const int32_t to = close_and_find();
  list_[index(position)].next[at_class] = to;
  return to;
}

void Positions::reach(Thread thread) {
  if (reached_.size() < kMaxReached &&
      std::find(reached_.begin(), reached_.end(), thread) == reached_.end())
    reached_.push_back(thread);
}

int32_t Positions::frame(int32_t back, int32_t below) {
  const auto [at, is_new] = frame_of_.emplace(pair_key(back, below), 0);
  if (is_new) {
    at->second = static_cast<int32_t>(frames_.size());
    frames_.push_back({back, below, static_cast<int16_t>(depth(below) + 1)});
    bytes_ += sizeof(Frame) + 32;  // and about that much in the map
  }
  return at->second;
}

void Positions::call(const Thread& from, const CallEdge& edge) {
  const int inside = network_.state(edge.start).height;
  const int need =
      depth(from.frame) +
      (edge.is_last ? inside : std::max<int>(inside + 1, network_.state(edge.back).height));
  peak_ = std::max(peak_, need);
  if (need > kMaxDepth) return;
  reach({edge.start, edge.is_last ? from.frame : frame(edge.back, from.frame)});
}

/// Follows calls and ends from what is reached; what reads bytes is the position.
int32_t Positions::close_and_find() {
  std::vector<Thread> threads;
  bool ends = false;
  for (size_t i = 0; i < reached_.size(); ++i) {
    const Thread thread = reached_[i];
    const NetworkState& state = network_.state(thread.state);
    if (!state.edges.empty()) threads.push_back(thread);
    if (state.ends) {
      if (thread.frame == kNoFrame)
        ends = true;
      else
        reach(returned(thread.frame));
    }
    for (const CallEdge& edge : state.calls) call(thread, edge);
  }
  work_ += std::ssize(reached_);
  if (threads.size() > kMaxThreads) threads.resize(kMaxThreads);
  std::sort(threads.begin(), threads.end());
  return find(std::move(threads), ends, peak_);
}

int32_t Positions::find(std::vector<Thread> threads, bool ends, int peak) {
  const bool too_deep = peak > kMaxDepth;
  const uint64_t hash = hash_of(threads, ends, too_deep);
  for (auto [at, last] = by_hash_.equal_range(hash); at != last; ++at) {
    Position& known = list_[index(at->second)];
    if (known.threads != threads || known.ends != ends || (known.peak > kMaxDepth) != too_deep)
      continue;
    known.peak = std::max(known.peak, peak);
    return at->second;
  }
  const auto number = static_cast<int32_t>(list_.size());
  bytes_ += sizeof(Position) + threads.size() * sizeof(Thread) + 48;
  list_.push_back({std::move(threads), {}, ends, peak});
  by_hash_.emplace(hash, number);
  return number;
}

}  // namespace switchyard::grammar
