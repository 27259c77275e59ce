// SPDX-License-Identifier: Apache-2.0
// Imbalance by batch size: a trace's tokens dealt anew into batches of B, as a service of another
// size would have run them. Needs a trace with picks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "moe/trace/reader.h"

namespace switchyard::moe {

enum class BatchOrder : uint8_t {
  across_requests,  ///< by position, then request: B sequences that decode side by side
  along_requests    ///< by request, then position: neighbours in a text, as in a prompt's chunk
};

struct BatchMeasures {
  int64_t batch = 0, num_batches = 0;
  std::vector<double> imbalance;  ///< [layer] mean over the batches of hottest over mean
  std::vector<double> touched;    ///< [layer] mean over the batches of experts with work
};

/// One row for each size that makes at least one whole batch; what is left over is not used. A
/// position that a request computed twice (after a preemption) counts once.
/// Cost O(sizes L T K) and, kept at a time, O(T K). The trace must hold picks.
std::vector<BatchMeasures> regroup(const TraceView& trace, BatchOrder order,
                                   std::span<const int64_t> sizes);

double mean_over_layers(std::span<const double> values);

}  // namespace switchyard::moe
