// SPDX-License-Identifier: Apache-2.0
#include "grammar/masks.h"

#include <algorithm>

namespace switchyard::grammar {
namespace {

/// Threads that one mask may look at for the first time: tens of milliseconds. Usual grammars take some hundreds. What
/// is left then are the tokens of one byte, so that the text can still go on.
constexpr int64_t kMaxWork = 2'000'000;
/// Above this, walking from the whole position beats walking from each of its threads.
constexpr size_t kManyThreads = 32;

void set(std::vector<uint64_t>& bits, int32_t token) {
  bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

Masks::Masks(Positions& positions, const TokenTrie& tokens)
    : positions_(positions), tokens_(tokens) {}

std::span<const uint64_t> Masks::of(int32_t position) {
  const auto [at, is_new] = masks_.try_emplace(position);
  Bits& bits = at->second;
  if (!is_new) return bits;
  bits.assign((static_cast<size_t>(tokens_.num_tokens()) + 63) / 64, 0);
  bytes_ += bits.size() * sizeof(uint64_t) + 64;
  work_limit_ = positions_.work() + kMaxWork;
  // Copied: positions that are found meanwhile move the list.
  const auto view = positions_.threads(position);
  const std::vector<Positions::Thread> threads(view.begin(), view.end());
  if (threads.size() > kManyThreads) {
    Found found{&bits};
    walk(position, 0, found);
  } else {
    for (const Positions::Thread thread : threads) add_thread(thread, bits);
  }
  if (positions_.ends(position))
    for (const int32_t token : tokens_.ends()) set(bits, token);
  return bits;
}

Masks::StateKey Masks::key_of(int32_t state) const {
  const NetworkState& is = positions_.network().state(state);
  if (is.chain < 0) return {-1, state, 0};
  const int32_t far = tokens_.longest() + 1;
  return {is.chain, std::min(is.to_least, far), std::min(is.to_most, far)};
}

const Masks::Inside& Masks::inside(int32_t state) {
  const auto [at, is_new] = inside_.try_emplace(key_of(state));
  Inside& is = at->second;
  if (!is_new) return is;
  is.bits.assign((static_cast<size_t>(tokens_.num_tokens()) + 63) / 64, 0);
  Found found{&is.bits, &is.ends};
  walk(positions_.at({state, Positions::kNoFrame}), 0, found);
  is.peak = found.peak;
  bytes_ += (is.bits.size() + is.ends.size()) * sizeof(uint64_t) + 128;
  return is;
}

void Masks::add_thread(Positions::Thread thread, Bits& bits) {
  const Inside& is = inside(thread.state);
  if (positions_.depth(thread.frame) + is.peak > kMaxDepth) {  // there, depth would matter
    Found found{&bits};
    walk(positions_.at(thread), 0, found);
    return;
  }
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= is.bits[i];
  if (thread.frame == Positions::kNoFrame || is.ends.empty()) return;
  const int32_t behind = positions_.at(positions_.returned(thread.frame));
  for (const int32_t node : is.ends) {
    Found found{&bits};
    walk(behind, node, found);
  }
}

void Masks::take(int32_t position, int32_t node, Found& found) {
  for (const int32_t token : tokens_.tokens(node)) set(*found.bits, token);
  if (found.ends != nullptr && positions_.ends(position)) found.ends->push_back(node);
}

/// The tree below `node`, entered at `position`.
void Masks::walk(int32_t position, int32_t node, Found& found) {
  const int32_t end = tokens_.skip(node);
  path_.assign(1, {end, position});
  for (int32_t at = node + 1; at < end;) {
    while (path_.back().first <= at) path_.pop_back();
    const int32_t next = positions_.step(path_.back().second, tokens_.byte(at));
    found.peak = std::max(found.peak, positions_.peak(next));
    const bool dead = next == Positions::kDead || next == Positions::kTooDeep;
    if (!dead) take(next, at, found);
    if (!dead && at + 1 < tokens_.skip(at) && !spent()) {
      path_.emplace_back(tokens_.skip(at), next);
      ++at;
    } else {
      at = tokens_.skip(at);
    }
  }
}

}  // namespace switchyard::grammar
