// SPDX-License-Identifier: Apache-2.0
#include "schedule/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace switchyard::schedule {

Scheduler::Scheduler(const Limits& limits) : limits_(limits), pool_(limits.num_blocks) {
  SWITCHYARD_CHECK(limits.check().ok(), "{}", limits.check().error().message);
  const auto most = static_cast<size_t>(limits.max_sequences);
  running_.reserve(limits.max_sequences);
  stepping_.reserve(most);
  decision_.runs.reserve(most);
  decision_.preempted.reserve(most);
}

Status Scheduler::add(const Arrival& arrival) {
  SWITCHYARD_CHECK(arrival.id > last_id_, "sequence {} after {}", arrival.id, last_id_);
  SWITCHYARD_CHECK(arrival.prompt_tokens >= 1 && arrival.prompt_tokens <= arrival.max_tokens,
                   "{} of at most {} tokens", arrival.prompt_tokens, arrival.max_tokens);
  if (arrival.priority < -kMaxPriority || arrival.priority > kMaxPriority)
    return fail(Code::bad_request, "priority is {}, expected -{} (first) to {}", arrival.priority,
                kMaxPriority, kMaxPriority);
  const int blocks = blocks_for(arrival.max_tokens, limits_.block_tokens);
  if (blocks > limits_.num_blocks)
    return fail(Code::bad_request,
                "the request may grow to {} tokens, but the KV cache holds {}: ask for fewer new "
                "tokens, shorten the prompt or give the cache more memory",
                arrival.max_tokens, int64_t{limits_.num_blocks} * limits_.block_tokens);
  last_id_ = arrival.id;
  Sequence& sequence = sequences_[arrival.id];
  sequence.id = arrival.id;
  sequence.priority = arrival.priority;
  sequence.place_s = arrival.now_s + arrival.priority * limits_.ageing_s;
  sequence.prompt_tokens = sequence.known_tokens = arrival.prompt_tokens;
  sequence.max_tokens = arrival.max_tokens;
  sequence.queue_deadline_s = arrival.queue_deadline_s;
  sequence.deadline_s = arrival.deadline_s;
  next_deadline_s_ = std::min({next_deadline_s_, arrival.queue_deadline_s, arrival.deadline_s});
  sequence.keys.assign(arrival.keys.begin(), arrival.keys.end());
  SWITCHYARD_CHECK(sequence.keys.size() * static_cast<size_t>(limits_.block_tokens) <=
                       static_cast<size_t>(arrival.prompt_tokens),
                   "{} keys for a prompt of {} tokens", sequence.keys.size(),
                   arrival.prompt_tokens);
  waiting_.insert(sequence);
  return {};
}

void Scheduler::add_key(SequenceId id, const BlockKey& key) {
  Sequence& sequence = sequences_.find(id)->second;
  sequence.keys.push_back(key);
  SWITCHYARD_CHECK(
      static_cast<int>(sequence.keys.size()) * limits_.block_tokens <= sequence.known_tokens + 1,
      "{} keys for {} tokens", sequence.keys.size(), sequence.known_tokens);
}

bool Scheduler::cancel(SequenceId id) {
  SWITCHYARD_CHECK(!in_step_, "sequence {} is cancelled inside a step", id);
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return false;
  remove(at->second);
  return true;
}

void Scheduler::remove(Sequence& sequence) {
  (sequence.state == Sequence::State::running ? running_ : waiting_).erase(sequence);
  pool_.release(sequence.blocks);
  sequences_.erase(sequence.id);
}

const Decision& Scheduler::decide(double now_s) {
  SWITCHYARD_CHECK(!in_step_, "a decision was not committed");
  now_s_ = now_s;
  stepping_.clear();
  decision_.runs.clear();
  decision_.preempted.clear();
  decision_.expired.clear();
  decision_.num_tokens = decision_.num_samples = decision_.num_decodes = 0;
  decision_.wake_s = kNever;
  decision_.experts_touched = experts_touched_;
  expire();
  make_way();
  decide_decoding();
  decide_prompts();
  hold_back();
  decision_.decode_only = decision_.num_samples == decision_.num_tokens;
  decision_.wake_s = std::min(decision_.wake_s, next_deadline_s_);
  in_step_ = !decision_.idle();
  return decision_;
}

void Scheduler::expire() {
  if (now_s_ < next_deadline_s_) return;
  next_deadline_s_ = kNever;
  for (const auto& [id, sequence] : sequences_) {
    const double queue_s = sequence.first_run_s < 0 ? sequence.queue_deadline_s : kNever;
    if (std::min(queue_s, sequence.deadline_s) > now_s_) {
      next_deadline_s_ = std::min({next_deadline_s_, queue_s, sequence.deadline_s});
    } else {
      const bool total = sequence.deadline_s <= now_s_;
      decision_.expired.push_back({id, total ? Deadline::total : Deadline::queue});
    }
  }
  std::sort(decision_.expired.begin(), decision_.expired.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const Decision::Expiry& gone : decision_.expired) remove(sequences_.find(gone.id)->second);
}

void Scheduler::decide_decoding() {
  // running_ may shrink from its end while we walk: victims are always behind, or this very
  // sequence.
  for (size_t i = 0; i < running_.size(); ++i)
    if (running_[i].decodes() && grow_for_next_token(i)) run(running_[i], 1);
  decision_.num_decodes = static_cast<int>(decision_.runs.size());
}

bool Scheduler::grow_for_next_token(size_t index) {
  Sequence& sequence = running_[index];
  const int missing = growth(sequence);
  while (missing > 0 && !pool_.take(missing, sequence.blocks)) {
    preempt(running_.last());
    if (running_.size() <= index) return false;  // it was the last itself
  }
  return true;
}

void Scheduler::preempt(Sequence& victim) {
  running_.erase(victim);
  ++counts_.preemptions;
  victim.lost_tokens = victim.computed_tokens;
  pool_.release(victim.blocks);
  victim.blocks.clear();
  victim.computed_tokens = 0;
  victim.state = Sequence::State::waiting;
  waiting_.insert(victim);
  decision_.preempted.push_back(victim.id);
}

void Scheduler::hold_back() {
  const auto batch = static_cast<int>(decision_.runs.size());
  // Company can come from new requests alone: who waits already cannot come in.
  const bool company_may_come = waiting_.empty() && batch < limits_.max_sequences;
  const bool small =
      batch > 0 && batch == decision_.num_decodes && batch < limits_.min_decode_batch;
  if (!small || !company_may_come || limits_.decode_wait_s == 0) {
    held_since_s_ = -1;
    return;
  }
  if (held_since_s_ < 0) {
    held_since_s_ = now_s_;
    ++counts_.held_steps;
  }
  const double until_s = held_since_s_ + limits_.decode_wait_s;
  if (now_s_ >= until_s) {
    held_since_s_ = -1;
    return;
  }
  decision_.wake_s = until_s;
  decision_.runs.clear();
  stepping_.clear();
  decision_.num_tokens = decision_.num_samples = decision_.num_decodes = 0;
}

void Scheduler::run(Sequence& sequence, int num_tokens) {
  const bool samples = num_tokens == sequence.pending_tokens();
  decision_.runs.push_back({sequence.id, sequence.computed_tokens, num_tokens, samples});
  stepping_.push_back(&sequence);
  decision_.num_tokens += num_tokens;
  decision_.num_samples += samples ? 1 : 0;
  if (sequence.first_run_s < 0) sequence.first_run_s = now_s_;
}

void Scheduler::commit(const Decision& decision, std::span<const Outcome> outcomes,
                       const StepFacts& facts) {
  SWITCHYARD_CHECK(in_step_ && &decision == &decision_, "not the last decision");
  SWITCHYARD_CHECK(outcomes.size() == decision.runs.size(), "{} outcomes for {} runs",
                   outcomes.size(), decision.runs.size());
  in_step_ = false;
  experts_touched_ = facts.experts_touched;
  for (size_t i = 0; i < outcomes.size(); ++i)
    finish_run(decision.runs[i], *stepping_[i], outcomes[i]);
}

void Scheduler::finish_run(const Decision::Run& run, Sequence& sequence, Outcome outcome) {
  if (outcome == Outcome::failed) {
    for (const int32_t block : sequence.blocks) pool_.forget(block);
    remove(sequence);
    return;
  }
  sequence.computed_tokens += run.num_tokens;
  publish(sequence);
  if (outcome == Outcome::ended) {
    remove(sequence);
  } else if (run.samples) {
    ++sequence.known_tokens;
    SWITCHYARD_CHECK(sequence.known_tokens <= sequence.max_tokens,
                     "sequence {} goes on beyond its {} tokens", run.id, sequence.max_tokens);
  }
}

void Scheduler::publish(Sequence& sequence) {
  const int full = std::min(sequence.computed_tokens / limits_.block_tokens,
                            static_cast<int>(sequence.keys.size()));
  for (; sequence.named_blocks < full; ++sequence.named_blocks) {
    const auto i = static_cast<size_t>(sequence.named_blocks);
    pool_.publish(sequence.blocks[i], sequence.keys[i]);
  }
}

const Sequence* Scheduler::find(SequenceId id) const noexcept {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

Counts Scheduler::counts() const noexcept {
  Counts counts = counts_;
  counts.waiting = static_cast<int>(waiting_.size());
  counts.running = static_cast<int>(running_.size());
  counts.blocks_free = pool_.num_free();
  counts.blocks_cached = pool_.num_cached();
  counts.blocks_used = pool_.num_used();
  counts.evictions = pool_.evictions();
  return counts;
}

}  // namespace switchyard::schedule
