// SPDX-License-Identifier: Apache-2.0
// The scheduler's rules 2 and 4: who makes way, and who comes in with which blocks.
#include <algorithm>

#include "base/check.h"
#include "schedule/scheduler.h"

namespace switchyard::schedule {

bool Scheduler::can_yield(const Sequence& running, const Sequence& to) const noexcept {
  return running.priority > to.priority && comes_before(to, running);
}

void Scheduler::make_way() {
  if (waiting_.empty() || running_.empty() || !can_yield(running_.last(), waiting_.first())) return;
  const Sequence& urgent = waiting_.first();
  if (!may_fare_better(urgent, in_vain_)) return;
  const Need need = need_of(urgent);
  if (is_worth_waiting_for(urgent, need.shared)) return;
  size_t left = 0;
  if (!find_way(urgent, need, left)) {
    in_vain_ = refusal_of(urgent, need);
  } else if (tokens_for(urgent, left) > 0) {
    while (running_.size() > left) preempt(running_.last());
  }
}

bool Scheduler::find_way(const Sequence& urgent, const Need& need, size_t& left) const {
  int slots = limits_.max_sequences - static_cast<int>(running_.size());
  int blocks = room() - need.own - need.woken;
  for (size_t i = 0; i < running_.size(); ++i) blocks -= growth(running_[i]);
  // Who leaves needs no spare block any more either.
  left = running_.size();
  for (; left > 0 && (slots < 1 || blocks < 0) && can_yield(running_[left - 1], urgent); --left) {
    const Sequence& victim = running_[left - 1];
    ++slots;
    blocks += 1 + growth(victim) + blocks_given_up(victim, urgent, need);
  }
  return slots >= 1 && blocks >= 0;
}

int Scheduler::growth(const Sequence& running) const noexcept {
  if (!running.decodes()) return 0;
  return blocks_for(running.known_tokens, limits_.block_tokens) -
         static_cast<int>(running.blocks.size());
}

int Scheduler::tokens_for(const Sequence& urgent, size_t left) const noexcept {
  int tokens = limits_.max_step_tokens;
  for (size_t i = 0; i < left && tokens > 0; ++i)
    if (running_[i].decodes() || comes_before(running_[i], urgent))
      tokens -= running_[i].pending_tokens();
  return tokens;
}

int Scheduler::blocks_given_up(const Sequence& victim, const Sequence& urgent,
                               const Need& need) const {
  int blocks = 0;
  for (size_t i = 0; i < victim.blocks.size(); ++i) {
    const bool stays =
        static_cast<int>(i) < need.shared && pool_.find(urgent.keys[i]) == victim.blocks[i];
    blocks += !stays && pool_.references(victim.blocks[i]) == 1 ? 1 : 0;
  }
  return blocks;
}

void Scheduler::decide_prompts() {
  bool open = true;  // nobody comes in past one who was turned back
  size_t i = 0;
  while (budget_left() > 0) {
    while (i < running_.size() && running_[i].decodes()) ++i;
    const bool has_prompt = i < running_.size();
    const bool next_waits =
        !waiting_.empty() && (!has_prompt || comes_before(waiting_.first(), running_[i]));
    if (open && next_waits) {
      if (admit(waiting_.first())) {
        ++i;  // it stands before, or at the end
      } else {
        open = false;
      }
    } else if (has_prompt) {
      Sequence& sequence = running_[i++];
      run(sequence, std::min(sequence.pending_tokens(), budget_left()));
    } else {
      return;
    }
  }
}

int Scheduler::shareable(const Sequence& sequence) const noexcept {
  // The last token is computed in any case, in a block of its own: nobody writes into a shared one.
  return std::min(static_cast<int>(sequence.keys.size()),
                  (sequence.known_tokens - 1) / limits_.block_tokens);
}

Scheduler::Need Scheduler::need_of(const Sequence& sequence) const {
  Need need;
  const int most = shareable(sequence);
  for (; need.shared < most; ++need.shared) {
    const int32_t block = pool_.find(sequence.keys[static_cast<size_t>(need.shared)]);
    if (block < 0) break;
    need.woken += pool_.references(block) == 0 ? 1 : 0;
  }
  need.own = blocks_for(sequence.known_tokens, limits_.block_tokens) - need.shared;
  return need;
}

bool Scheduler::is_worth_waiting_for(const Sequence& sequence, int shared) const {
  const int most = shareable(sequence);
  int promised = 0;  // blocks
  for (size_t i = 0; i < running_.size() && comes_before(running_[i], sequence); ++i) {
    const Sequence& other = running_[i];
    if (other.named_blocks > shared) continue;  // it has offered that block: it is gone again
    const int end = std::min(most, static_cast<int>(other.keys.size()));
    int block = shared;
    while (block < end &&
           other.keys[static_cast<size_t>(block)] == sequence.keys[static_cast<size_t>(block)])
      ++block;
    promised = std::max(promised, block - shared);
  }
  const int missing = sequence.known_tokens - shared * limits_.block_tokens;
  return 2 * promised * limits_.block_tokens >= missing;
}

Scheduler::Refusal Scheduler::refusal_of(const Sequence& sequence, const Need& need) const {
  return {sequence.id, room(), need.shared, running_.size()};
}

bool Scheduler::may_fare_better(const Sequence& sequence, const Refusal& last) const noexcept {
  if (sequence.id != last.id || room() > last.room || running_.size() != last.running) return true;
  return last.shared < shareable(sequence) &&
         pool_.find(sequence.keys[static_cast<size_t>(last.shared)]) >= 0;
}

bool Scheduler::admit(Sequence& sequence) {
  if (static_cast<int>(running_.size()) >= limits_.max_sequences ||
      !may_fare_better(sequence, refused_))
    return false;
  const Need need = need_of(sequence);
  if (is_worth_waiting_for(sequence, need.shared)) return false;
  if (need.own + need.woken > room()) {
    refused_ = refusal_of(sequence, need);
    return false;
  }
  // Not on arrival: those who wait may be many, and their longest answers long.
  const auto most = static_cast<size_t>(blocks_for(sequence.max_tokens, limits_.block_tokens));
  sequence.blocks.reserve(most);
  sequence.keys.reserve(most);
  for (int i = 0; i < need.shared; ++i) {
    sequence.blocks.push_back(pool_.find(sequence.keys[static_cast<size_t>(i)]));
    pool_.share(sequence.blocks.back());
  }
  SWITCHYARD_CHECK(pool_.take(need.own, sequence.blocks), "{} blocks of {}", need.own,
                   pool_.num_available());
  sequence.named_blocks = need.shared;
  sequence.computed_tokens = need.shared * limits_.block_tokens;
  note_reuse(sequence);
  waiting_.erase(sequence);
  sequence.state = Sequence::State::running;
  running_.insert(sequence);
  run(sequence, std::min(sequence.pending_tokens(), budget_left()));
  refused_ = in_vain_ = {};  // what it has woken, another who shares it need not wake again
  return true;
}

void Scheduler::note_reuse(Sequence& sequence) {
  const auto found = static_cast<uint64_t>(sequence.computed_tokens);
  if (sequence.first_run_s < 0) {
    sequence.cached_tokens = sequence.computed_tokens;
    counts_.prefix_hit_tokens += found;
    if (!sequence.keys.empty())
      counts_.prefix_query_tokens += static_cast<uint64_t>(sequence.prompt_tokens);
  }
  const auto lost = static_cast<uint64_t>(sequence.lost_tokens);
  counts_.recomputed_tokens += lost > found ? lost - found : 0;
  sequence.lost_tokens = 0;
}

}  // namespace switchyard::schedule
