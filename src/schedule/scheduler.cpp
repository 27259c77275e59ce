// SPDX-License-Identifier: Apache-2.0
#include "schedule/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace switchyard::schedule {

Status Limits::check() const {
  if (max_sequences < 1)
    return fail(Code::bad_request, "max_sequences is {}, expected at least 1", max_sequences);
  if (block_tokens < 1)
    return fail(Code::bad_request, "block_tokens is {}, expected at least 1", block_tokens);
  if (max_step_tokens < max_sequences)
    return fail(
        Code::bad_request,
        "max_step_tokens is {}, but {} sequences may decode one token each in a step: raise "
        "it or lower max_sequences",
        max_step_tokens, max_sequences);
  if (num_blocks < 1)
    return fail(Code::bad_request, "the KV cache has {} blocks, expected at least 1", num_blocks);
  return {};
}

Scheduler::Scheduler(const Limits& limits) : limits_(limits), pool_(limits.num_blocks) {
  SWITCHYARD_CHECK(limits.check().ok(), "{}", limits.check().error().message);
  const auto most = static_cast<size_t>(limits.max_sequences);
  running_.reserve(most);
  decision_.runs.reserve(most);
  decision_.preempted.reserve(most);
}

Status Scheduler::add(SequenceId id, int prompt_tokens, int max_tokens, double now_s) {
  SWITCHYARD_CHECK(id > last_id_, "sequence {} after {}", id, last_id_);
  SWITCHYARD_CHECK(prompt_tokens >= 1 && prompt_tokens <= max_tokens, "{} of at most {} tokens",
                   prompt_tokens, max_tokens);
  const int blocks = blocks_for(max_tokens, limits_.block_tokens);
  if (blocks > limits_.num_blocks)
    return fail(Code::bad_request,
                "the request may grow to {} tokens, but the KV cache holds {}: ask for fewer new "
                "tokens, shorten the prompt or give the cache more memory",
                max_tokens, int64_t{limits_.num_blocks} * limits_.block_tokens);
  last_id_ = id;
  Sequence& sequence = sequences_[id];
  sequence.id = id;
  sequence.known_tokens = prompt_tokens;
  sequence.max_tokens = max_tokens;
  sequence.arrived_s = now_s;
  sequence.blocks.reserve(static_cast<size_t>(blocks));
  waiting_.push_back(&sequence);
  return {};
}

bool Scheduler::cancel(SequenceId id) {
  SWITCHYARD_CHECK(!in_step_, "sequence {} is cancelled inside a step", id);
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return false;
  Sequence* sequence = &at->second;
  if (sequence->state == Sequence::State::running) {
    running_.erase(std::find(running_.begin(), running_.end(), sequence));
  } else {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), sequence));
  }
  release(*sequence);
  sequences_.erase(at);
  return true;
}

const Decision& Scheduler::decide(double now_s) {
  SWITCHYARD_CHECK(!in_step_, "a decision was not committed");
  now_s_ = now_s;
  decision_.runs.clear();
  decision_.preempted.clear();
  decision_.num_tokens = decision_.num_samples = 0;
  decide_decoding();
  decide_prompts();
  admit_waiting();
  decision_.decode_only = decision_.num_samples == decision_.num_tokens;
  in_step_ = !decision_.idle();
  return decision_;
}

void Scheduler::decide_decoding() {
  // running_ may shrink from its end while we walk: victims are always behind, or this very
  // sequence.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->pending_tokens() != 1) continue;
    if (grow_for_next_token(i)) run(*running_[i], 1);
  }
}

bool Scheduler::grow_for_next_token(size_t index) {
  Sequence& sequence = *running_[index];
  const int missing = blocks_for(sequence.known_tokens, limits_.block_tokens) -
                      static_cast<int>(sequence.blocks.size());
  while (missing > 0 && !pool_.take(missing, sequence.blocks)) {
    preempt_newest();
    if (running_.size() <= index) return false;  // it was the newest itself
  }
  return true;
}

void Scheduler::preempt_newest() {
  Sequence& victim = *running_.back();
  running_.pop_back();
  ++preemptions_;
  recomputed_tokens_ += static_cast<uint64_t>(victim.computed_tokens);
  release(victim);
  victim.computed_tokens = 0;
  victim.state = Sequence::State::waiting;
  waiting_.push_front(&victim);
  decision_.preempted.push_back(victim.id);
}

void Scheduler::decide_prompts() {
  for (Sequence* sequence : running_) {
    if (budget_left() == 0) return;
    if (sequence->pending_tokens() > 1)
      run(*sequence, std::min(sequence->pending_tokens(), budget_left()));
  }
}

void Scheduler::admit_waiting() {
  // Who was thrown out in this very step would only be admitted into the room that its elders need.
  if (!decision_.preempted.empty()) return;
  while (!waiting_.empty() && budget_left() > 0 &&
         static_cast<int>(running_.size()) < limits_.max_sequences) {
    Sequence& sequence = *waiting_.front();
    const int blocks = blocks_for(sequence.known_tokens, limits_.block_tokens);
    const int spare = static_cast<int>(running_.size());
    if (blocks + spare > pool_.num_free() || !pool_.take(blocks, sequence.blocks)) return;
    waiting_.pop_front();
    sequence.state = Sequence::State::running;
    running_.push_back(&sequence);
    run(sequence, std::min(sequence.pending_tokens(), budget_left()));
  }
}

void Scheduler::run(Sequence& sequence, int num_tokens) {
  const bool samples = num_tokens == sequence.pending_tokens();
  decision_.runs.push_back({sequence.id, sequence.computed_tokens, num_tokens, samples});
  decision_.num_tokens += num_tokens;
  decision_.num_samples += samples ? 1 : 0;
  if (sequence.first_run_s < 0) sequence.first_run_s = now_s_;
}

void Scheduler::commit(const Decision& decision, std::span<const Outcome> outcomes) {
  SWITCHYARD_CHECK(in_step_ && &decision == &decision_, "not the last decision");
  SWITCHYARD_CHECK(outcomes.size() == decision.runs.size(), "{} outcomes for {} runs",
                   outcomes.size(), decision.runs.size());
  in_step_ = false;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Decision::Run& step = decision.runs[i];
    if (outcomes[i] == Outcome::ended) {
      cancel(step.id);
      continue;
    }
    Sequence& sequence = sequences_.find(step.id)->second;
    sequence.computed_tokens += step.num_tokens;
    if (!step.samples) continue;
    ++sequence.known_tokens;
    SWITCHYARD_CHECK(sequence.known_tokens <= sequence.max_tokens,
                     "sequence {} goes on beyond its {} tokens", step.id, sequence.max_tokens);
  }
}

void Scheduler::release(Sequence& sequence) {
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
}

const Sequence* Scheduler::find(SequenceId id) const noexcept {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : &at->second;
}

Counts Scheduler::counts() const noexcept {
  Counts counts;
  counts.waiting = static_cast<int>(waiting_.size());
  counts.running = static_cast<int>(running_.size());
  counts.blocks_free = pool_.num_free();
  counts.blocks_used = pool_.num_blocks() - pool_.num_free();
  counts.preemptions = preemptions_;
  counts.recomputed_tokens = recomputed_tokens_;
  return counts;
}

}  // namespace switchyard::schedule
