// SPDX-License-Identifier: Apache-2.0
// Scheduler: decides, before every step, which sequences run and on how many tokens (continuous
// batching). All requests stand in one order: by time of arrival, moved by ageing_s for every level
// of priority (Sequence::place_s).
//
//   1. Who has missed a deadline goes.
//   2. When the first of those who wait finds no slot or no blocks, running sequences of lower
//      priority that come after it make way, last ones first, if with that it comes in at once.
//   3. Sequences that decode run, in order, one token each. When a new block is needed and none is
//      available, the last running sequence gives up its blocks and waits again; what the cache has
//      kept of them by then is shared anew, the rest is computed again (preemption by recompute).
//   4. What is left of the token budget goes to prompts in order, cut into chunks. Those who wait
//      are admitted at their place in that order, when a slot and blocks for all known tokens are
//      left, with one spare block for each sequence that runs already, so that it is not thrown out
//      at once. Nobody is admitted past another who waits.
//   5. A step that would only decode, for fewer than min_decode_batch sequences, is held back for
//      decode_wait_s: weights are read once for all tokens of a step.
//
// A new sequence shares the cached blocks of the longest known prefix, but computes at least its
// last token, whose logits it needs. When another is just computing most of its prompt, it waits for
// that, and everybody behind it. The first of all is never preempted, and only finitely many
// ever come before a given one; so each gets its turn. A decision is a function of the calls made
// before, and of the times that they named: there is no clock in here.
// Source: Yu et al. 2022 (Orca, OSDI); Kwon et al. 2023, arXiv 2309.06180; Agrawal et al. 2023,
// arXiv 2308.16369 (chunked prefill).
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "schedule/blocks.h"
#include "schedule/decision.h"
#include "schedule/limits.h"
#include "schedule/order.h"
#include "schedule/sequence.h"

namespace switchyard::schedule {

class Scheduler {
 public:
  /// `limits` must have passed check().
  explicit Scheduler(const Limits& limits);

  /// Queues a sequence. Errors: Code::bad_request when the cache could not hold max_tokens even if
  /// the sequence were alone, or when the priority is out of range.
  Status add(const Arrival& arrival);
  /// The key of the next full block of known tokens, or of one that the next commit will make known.
  /// Only for a sequence whose prompt came with the keys of all its full blocks.
  void add_key(SequenceId id, const BlockKey& key);
  /// Ends a sequence between two steps, wherever it stands, and frees its blocks. False when the id
  /// is not known.
  bool cancel(SequenceId id);

  /// The next step. The reference stays valid, and must be committed unless idle, before the next
  /// call.
  const Decision& decide(double now_s);
  /// Reports the step as done: outcomes[i] belongs to decision.runs[i].
  void commit(const Decision& decision, std::span<const Outcome> outcomes,
              const StepFacts& facts = {});

  /// The sequence of that id, or null when it has ended or never was. Stays in its place till then.
  const Sequence* find(SequenceId id) const noexcept;
  const Limits& limits() const noexcept { return limits_; }
  Counts counts() const noexcept;

 private:
  /// What admitting a sequence takes.
  struct Need {
    int shared = 0;  // leading blocks that are in the cache
    int woken = 0;   // of these, blocks that nobody owns: they cannot be handed out any more
    int own = 0;     // blocks that are not
  };
  /// The first of those who wait, when it was last turned back, and what it found.
  struct Refusal {
    SequenceId id = 0;
    int room = 0, shared = 0;
    size_t running = 0;
  };

  void expire();
  void make_way();
  void decide_decoding();
  void decide_prompts();
  void hold_back();

  bool can_yield(const Sequence& running, const Sequence& to) const noexcept;
  /// A walk that changes nothing, so that nobody is disturbed in vain: slots and blocks suffice for
  /// `urgent` when of those who run only the first `left` stay. False when no number does.
  bool find_way(const Sequence& urgent, const Need& need, size_t& left) const;
  int blocks_given_up(const Sequence& victim, const Sequence& urgent, const Need& need) const;
  /// Blocks that it takes in this step, before anybody is admitted.
  int growth(const Sequence& running) const noexcept;
  /// Tokens of this step that are left at the place of `urgent`, when the first `left` of those who
  /// run stay.
  int tokens_for(const Sequence& urgent, size_t left) const noexcept;
  bool grow_for_next_token(size_t index);
  void preempt(Sequence& victim);

  int shareable(const Sequence& sequence) const noexcept;
  Need need_of(const Sequence& sequence) const;
  Refusal refusal_of(const Sequence& sequence, const Need& need) const;
  /// False when nothing has changed for the better since it was turned back; saves the search for
  /// its prefix, and for victims, in every step. Whoever comes in makes both be forgotten.
  bool may_fare_better(const Sequence& sequence, const Refusal& last) const noexcept;
  /// True when at least half of what it would have to compute is being computed by one who runs
  /// before it, and so gets tokens before it.
  bool is_worth_waiting_for(const Sequence& sequence, int shared) const;
  bool admit(Sequence& sequence);
  void note_reuse(Sequence& sequence);

  void run(Sequence& sequence, int num_tokens);
  void finish_run(const Decision::Run& run, Sequence& sequence, Outcome outcome);
  void publish(Sequence& sequence);
  void remove(Sequence& sequence);

  int budget_left() const noexcept { return limits_.max_step_tokens - decision_.num_tokens; }
  /// Blocks for a newcomer: what is available, less one for each who runs.
  int room() const noexcept { return pool_.num_available() - static_cast<int>(running_.size()); }

  Limits limits_;
  BlockPool pool_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  Order running_, waiting_;
  Decision decision_;
  std::vector<Sequence*> stepping_;  // of decision_.runs
  Refusal refused_, in_vain_;        // by admit(), by make_way()
  double now_s_ = 0;
  double next_deadline_s_ = kNever;  // no later than the next one
  double held_since_s_ = -1;         // since when a decoding step waits; negative: none does
  double experts_touched_ = 0;
  SequenceId last_id_ = 0;
  bool in_step_ = false;  // between a decision that is not idle and its commit
  Counts counts_;         // those that only grow
};

}  // namespace switchyard::schedule
