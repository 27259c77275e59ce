// SPDX-License-Identifier: Apache-2.0
// What bench moe does alike on every device: draws, the order of runs, and how a row comes of them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/bench_moe_draw.h"
#include "cli/bench_moe_row.h"
#include "cli/bench_moe_shape.h"
#include "moe/baseline/routed_layer.h"

namespace switchyard::cli {

struct MoeBenchOptions {
  std::vector<std::string> routings{"uniform"};
  std::vector<int> tokens{1, 32, 256};
  std::vector<double> capacities{0};
  std::vector<moe::Execution> executions{moe::Execution::grouped};
  DType dtype = DType::bf16;
  int layers = 0;   ///< L; 0: as many as leave the caches, but no more than the model has
  int repeats = 0;  ///< 0: at least 5, and about 0.4 s for each row
  bool phases = false;
  uint64_t seed = 1;

  bool runs(moe::Execution execution) const noexcept;
  int most_tokens() const noexcept;
};

using MoeRowSink = std::function<void(const MoeRow&)>;

inline constexpr int kMoeDrawSets = 8;  ///< different routings of a row; later runs repeat them

/// One row under way.
struct MoeItem {
  moe::Execution execution;
  double factor = 0;
  const std::vector<MoeDraw>* draws = nullptr;  ///< [kMoeDrawSets, L]
  std::vector<double> times_us;                 ///< sorted once measured
};

double median(const std::vector<double>& sorted);

Result<std::vector<moe::Traffic>> open_moe_traffic(const MoeShape& shape,
                                                   const MoeBenchOptions& options);
/// [kMoeDrawSets, layers]
Result<std::vector<MoeDraw>> make_moe_draws(const MoeShape& shape, const moe::Traffic& traffic,
                                            int layers, int tokens, double factor,
                                            const Stream& stream);
/// How many copies of the layer leave caches of this size, by what the smallest step touches; MoeBenchOptions::layers if set.
Result<int> plan_moe_layers(const MoeShape& shape, const MoeBenchOptions& options,
                            const std::vector<moe::Traffic>& traffic, int64_t cache_bytes,
                            const Stream& stream);
/// Items for every capacity and way of execution; draws are those of each capacity.
std::vector<MoeItem> moe_items(const MoeBenchOptions& options,
                               const std::vector<std::vector<MoeDraw>>& draws);
/// Runs the items in turn until each has enough; `time_pass` gives microseconds of a layer.
Status measure_in_turn(std::vector<MoeItem>& items, const MoeBenchOptions& options, int layers,
                       const std::function<Result<double>(MoeItem&, int run)>& time_pass);

/// What the device can do at most; 0: not known.
struct MoePeaks {
  double read_gbps = 0, gflops = 0;
};
/// All of a row but what runs it: layers, threads, gemm and phases.
MoeRow make_moe_row(const MoeShape& shape, const MoeBenchOptions& options, const MoeItem& item,
                    std::string_view routing, int tokens, const MoePeaks& peaks);

}  // namespace switchyard::cli
