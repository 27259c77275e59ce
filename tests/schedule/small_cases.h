// SPDX-License-Identifier: Apache-2.0
// Small cases for the scheduler's tests: limits, keys of texts, decisions as text, and commits.
#pragma once
#include <string>
#include <vector>

#include <fmt/format.h>

#include "schedule/scheduler.h"

namespace switchyard::schedule {

/// Commits a decision in which every run ends the same way.
inline void commit_all(Scheduler& scheduler, const Decision& decision, Outcome outcome) {
  scheduler.commit(decision, std::vector<Outcome>(decision.runs.size(), outcome));
}
inline void go_on(Scheduler& scheduler, const Decision& decision) {
  commit_all(scheduler, decision, Outcome::goes_on);
}

/// "1[0,4) 2[7,8)*": id, token range, * when the run samples.
inline std::string text(const Decision& decision) {
  std::string out;
  for (const Decision::Run& run : decision.runs)
    out += fmt::format("{}{}[{},{}){}", out.empty() ? "" : " ", run.id, run.first_token,
                       run.first_token + run.num_tokens, run.samples ? "*" : "");
  return out;
}

inline Limits limits(int max_sequences, int max_step_tokens, int num_blocks, int block_tokens = 4) {
  Limits limits;
  limits.max_sequences = max_sequences;
  limits.max_step_tokens = max_step_tokens;
  limits.block_tokens = block_tokens;
  limits.num_blocks = num_blocks;
  return limits;
}

/// Keys of the full blocks of a text whose first `common` tokens are the same for everybody.
inline std::vector<BlockKey> keys_of(int tokens, int common, int who, int block_tokens = 4) {
  constexpr SipKey kSecret{1, 2};
  std::vector<BlockKey> keys;
  BlockKey key = first_key(kSecret, "");
  for (int first = 0; first + block_tokens <= tokens; first += block_tokens) {
    std::vector<int32_t> block;
    for (int i = first; i < first + block_tokens; ++i)
      block.push_back(i < common ? i : 1000 * who + i);
    keys.push_back(key = next_key(kSecret, key, block));
  }
  return keys;
}

}  // namespace switchyard::schedule
