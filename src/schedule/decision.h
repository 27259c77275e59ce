// SPDX-License-Identifier: Apache-2.0
// Decision: what one step does, and what its end reports back. Pure data; the vectors are reused from step to step.
#pragma once
#include <cstdint>
#include <vector>

#include "schedule/sequence.h"

namespace switchyard::schedule {

enum class Deadline : uint8_t { queue, total };

struct Decision {
  struct Run {
    SequenceId id = 0;
    int first_token = 0;   ///< position of the first token to compute
    int num_tokens = 0;    ///< tokens [first_token, first_token + num_tokens)
    bool samples = false;  ///< the last known token is among them: its logits give the next one
  };
  struct Expiry {
    SequenceId id = 0;
    Deadline deadline = Deadline::total;
  };
  std::vector<Run> runs;  ///< in batch order, decoding sequences first
  std::vector<SequenceId>
      preempted;                ///< lost their blocks since the last decision; they wait again
  std::vector<Expiry> expired;  ///< missed a deadline and are gone
  int num_tokens = 0;           ///< T
  int num_samples = 0;          ///< N
  int num_decodes = 0;          ///< runs of sequences that have an output already; the first ones
  bool decode_only = false;     ///< every run is one token that samples
  double wake_s = kNever;       ///< decide again by then, even if nothing has come
  double experts_touched = 0;   ///< experts with work in the last step, mean over its MoE layers
  bool idle() const noexcept { return runs.empty(); }
};

/// What became of a run. A run that does not sample goes on or has failed.
enum class Outcome : uint8_t {
  goes_on,  ///< it got a token
  ended,    ///< with its last token
  failed,   ///< and what it has computed may be wrong: nobody may share it
};

/// What the step tells the next decision.
struct StepFacts {
  double experts_touched = 0;  ///< mean over the MoE layers; 0 when nothing was routed
};

struct Counts {
  int waiting = 0, running = 0;
  int blocks_free = 0, blocks_cached = 0, blocks_used = 0;
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;    ///< computed again after a preemption
  uint64_t prefix_query_tokens = 0;  ///< prompt tokens that were looked up in the cache
  uint64_t prefix_hit_tokens = 0;    ///< and found
  uint64_t evictions = 0;            ///< blocks that lost their contents to new ones
  uint64_t held_steps = 0;           ///< decoding steps that waited for company
};

}  // namespace switchyard::schedule
