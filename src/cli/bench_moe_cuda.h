// SPDX-License-Identifier: Apache-2.0
// bench moe on a CUDA device: the same rows as on the host, and the same meaning of each column.
//
// A run is one pass over L copies of the layer, as in bench_moe_run.h; grouped and padded passes are graphs, timed by events.
// The routing is given (picks and weights on the device); the clock covers the order of rows, both products and combine.
//   naive    a loop of launches over the touched experts: gather, gate and up by the library, activation, down by the library,
//            add. The host knows the counts, so it leaves out what eager loops wait for
//   phases   grouped and padded: differences between passes that stop earlier, by the entry that has them apart; gather and
//            activation are inside the first product. naive: each part of the loop alone
//   threads  multiprocessors
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "cli/bench_moe_measure.h"

namespace switchyard::cli {

/// Errors: unavailable without CUDA or a device; unsupported for weights other than bf16 and for shapes that no kernel takes;
/// out_of_memory with what to lower. `ceilings` is a file as for the host, or empty.
Status bench_moe_on_cuda(const std::vector<MoeShape>& shapes, const MoeBenchOptions& options,
                         const std::string& ceilings, int device, Pool& pool,
                         const MoeRowSink& on_row);

}  // namespace switchyard::cli
