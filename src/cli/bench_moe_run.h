// SPDX-License-Identifier: Apache-2.0
// Measures one MoE shape on the host: every routing, number of tokens, capacity and way of execution.
//
// A run is one pass over L copies of the layer with weights of their own, so many that a pass leaves
// the caches if a step of the whole model would; its time over L is the time of a layer. The clock
// covers plan, gather, products and combine. The router and the dropping are outside, because the
// routing is given. The ways and capacities of a row take turns, run by run, so that a drift of the
// machine meets all of them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "cli/bench_moe_measure.h"
#include "kernels/cpu/ceilings.h"
#include "moe/route/router.h"

namespace switchyard::cli {

class MoeBench {
 public:
  /// Errors: bad_request for a routing that does not fit the shape, out_of_memory with what to lower.
  static Result<std::unique_ptr<MoeBench>> create(const MoeShape& shape,
                                                  const MoeBenchOptions& options, Pool& pool,
                                                  const cpu::Ceilings& ceilings);

  /// Calls `on_row` for each row as soon as it is measured.
  Status run(const MoeRowSink& on_row);

 private:
  MoeBench(const MoeShape& shape, const MoeBenchOptions& options, Pool& pool,
           const cpu::Ceilings& ceilings);
  Status plan_layers();
  Status plan_capacity();
  Status check_memory() const;
  Status make_layers();
  Result<std::vector<MoeDraw>> make_draws(const moe::Traffic& traffic, int tokens,
                                          double factor) const;
  Status run_tokens(const moe::Traffic& traffic, int tokens, const MoeRowSink& on_row);
  double time_pass(const MoeItem& item, int run);
  std::vector<std::pair<std::string, double>> measure_phases(const MoeItem& item, int tokens);
  MoeRow make_row(const MoeItem& item, const moe::Traffic& traffic, int tokens) const;

  MoeShape shape_;
  MoeBenchOptions options_;
  Pool* pool_;
  cpu::Ceilings ceilings_;
  Tracer tracer_;
  Stream stream_;
  int max_tokens_ = 0, num_layers_ = 1;
  int64_t max_capacity_ = 0;  // of padded; 0 when it is not asked for
  std::vector<moe::Traffic> traffic_;
  std::vector<moe::RoutedLayer> layers_;
  std::unique_ptr<moe::Router> router_;  // only for its phase
  Arena arena_;
  std::vector<float> x_, y_;  // [T, D]
};

}  // namespace switchyard::cli
