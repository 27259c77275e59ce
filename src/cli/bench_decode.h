// SPDX-License-Identifier: Apache-2.0
// The decode of several sequences at once, timed while all of them run, and its floor: the bytes that a step must read.
#pragma once
#include <cstdint>

#include "switchyard/engine.h"

#include "base/result.h"

namespace switchyard::cli {

struct DecodeShape {
  int sequences = 1;
  int context = 1;  ///< prompt tokens of each
  int steps = 128;  ///< measured
};

struct DecodeRun {
  double seconds = 0;          ///< of all measured steps
  double mean_context = 0;     ///< positions that a sequence attends to, over sequences and steps
  double experts_touched = 0;  ///< of a MoE layer and a step, mean
  double imbalance = 0;        ///< hottest expert over mean, of a MoE layer and a step, mean

  double tokens_per_s(const DecodeShape& shape) const {
    return shape.sequences * shape.steps / seconds;
  }
  double step_ms(const DecodeShape& shape) const { return seconds * 1e3 / shape.steps; }
};

/// Submits the sequences, with prompts drawn from `stream`, and cancels them when enough steps are measured: from the first token
/// of the sequence that starts last. Resets the engine's statistics. Errors: Code::bad_request when they do not fit; the first
/// error of any of them.
Result<DecodeRun> run_decode(Engine& engine, const DecodeShape& shape, int max_step_tokens,
                             uint32_t stream);

/// Experts touched and imbalance of a MoE layer and a step since the engine's statistics were reset, means.
double mean_experts_touched(const Engine& engine);
double mean_imbalance(const Engine& engine);

/// Bytes that a step of this run reads at least: every weight outside the experts except a table that is only looked up in, the
/// touched experts, and keys and values.
double step_bytes(const ModelSummary& summary, const DecodeShape& shape, const DecodeRun& run);

/// The prompt of a measurement; the same in every run.
std::vector<int32_t> bench_prompt(int tokens, int vocab, uint32_t stream);

}  // namespace switchyard::cli
