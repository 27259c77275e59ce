// SPDX-License-Identifier: Apache-2.0
// Scheduler: decides, before every step, which sequences run and on how many tokens (continuous
// batching).
//
//   1. Sequences that decode run first, oldest first, one token each. When a new block is needed
//   and none is free,
//      the newest running sequence gives up all of its blocks and goes back to the head of the
//      waiting list; its tokens are computed again later (preemption by recompute).
//   2. What is left of the token budget goes to prompts in order of arrival, cut into chunks.
//   3. The head of the waiting list is admitted when a slot, some budget, and blocks for all of its
//   known tokens are
//      left, with one spare block for each sequence that runs already, so that it is not thrown out
//      at once.
//
// The running sequences are always older than the waiting ones, and the oldest is never preempted;
// so each gets its turn. A decision is a function of the calls made before: time is only noted,
// never a criterion. Source: Yu et al. 2022 (Orca, OSDI); Kwon et al. 2023, arXiv 2309.06180;
// Agrawal et al. 2023, arXiv 2308.16369 (chunked prefill).
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "schedule/blocks.h"
#include "schedule/sequence.h"

namespace switchyard::schedule {

struct Limits {
  int max_sequences = 16;     ///< B of a step at most
  int max_step_tokens = 512;  ///< T of a step at most; at least max_sequences
  int block_tokens = 16;      ///< P
  int num_blocks = 0;         ///< blocks of the KV cache

  /// Refuses limits with which a sequence could wait for ever.
  Status check() const;
};

/// What one step does. Pure data; its vectors are reused from step to step.
struct Decision {
  struct Run {
    SequenceId id = 0;
    int first_token = 0;   ///< position of the first token to compute
    int num_tokens = 0;    ///< tokens [first_token, first_token + num_tokens)
    bool samples = false;  ///< the last known token is among them: its logits give the next one
  };
  std::vector<Run> runs;  ///< in batch order, decoding sequences first
  std::vector<SequenceId>
      preempted;             ///< lost their blocks since the last decision; they wait again
  int num_tokens = 0;        ///< T
  int num_samples = 0;       ///< N
  bool decode_only = false;  ///< every run is one token that samples
  bool idle() const noexcept { return runs.empty(); }
};

/// What became of a run: the sequence got a token and goes on, or it has ended. A run that does not
/// sample goes on.
enum class Outcome : uint8_t { goes_on, ended };

struct Counts {
  int waiting = 0, running = 0;
  int blocks_free = 0, blocks_used = 0;
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;  ///< computed positions that preemptions threw away
};

class Scheduler {
 public:
  /// `limits` must have passed check().
  explicit Scheduler(const Limits& limits);

  /// Queues a sequence of `prompt_tokens` that may grow to `max_tokens` in all. Ids must rise from
  /// call to call. Errors: Code::bad_request when the cache could not hold max_tokens even if the
  /// sequence were alone.
  Status add(SequenceId id, int prompt_tokens, int max_tokens, double now_s);
  /// Ends a sequence between two steps, wherever it stands, and frees its blocks. False when the id
  /// is not known.
  bool cancel(SequenceId id);

  /// The next step. The reference stays valid, and must be committed unless idle, before the next
  /// call.
  const Decision& decide(double now_s);
  /// Reports the step as done: outcomes[i] belongs to decision.runs[i].
  void commit(const Decision& decision, std::span<const Outcome> outcomes);

  /// The sequence of that id, or null when it has ended or never was.
  const Sequence* find(SequenceId id) const noexcept;
  const Limits& limits() const noexcept { return limits_; }
  Counts counts() const noexcept;

 private:
  void decide_decoding();
  void decide_prompts();
  void admit_waiting();
  bool grow_for_next_token(size_t index);
  void preempt_newest();
  void run(Sequence& sequence, int num_tokens);
  void release(Sequence& sequence);
  int budget_left() const noexcept { return limits_.max_step_tokens - decision_.num_tokens; }

  Limits limits_;
  BlockPool pool_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<Sequence*> running_;  // by age, oldest first
  std::deque<Sequence*> waiting_;   // by age, all younger than the running ones
  Decision decision_;
  double now_s_ = 0;
  SequenceId last_id_ = 0;
  bool in_step_ = false;  // between a decision that is not idle and its commit
  uint64_t preemptions_ = 0, recomputed_tokens_ = 0;
};

}  // namespace switchyard::schedule
