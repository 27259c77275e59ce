// SPDX-License-Identifier: Apache-2.0
// Measures one MoE shape: every routing, number of tokens, capacity and way of execution.
//
// A run is one pass over L copies of the layer with weights of their own, so many that a pass leaves
// the caches if a step of the whole model would; its time over L is the time of a layer. The clock
// covers plan, gather, products and combine. The router and the dropping are outside, because the
// routing is given. The ways and capacities of a row take turns, run by run, so that a drift of the
// machine meets all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "cli/bench_moe_draw.h"
#include "cli/bench_moe_row.h"
#include "cli/bench_moe_shape.h"
#include "kernels/cpu/ceilings.h"
#include "moe/baseline/routed_layer.h"
#include "moe/route/router.h"

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
};

class MoeBench {
 public:
  /// Errors: bad_request for a routing that does not fit the shape, out_of_memory with what to lower.
  static Result<std::unique_ptr<MoeBench>> create(const MoeShape& shape,
                                                  const MoeBenchOptions& options, Pool& pool,
                                                  const cpu::Ceilings& ceilings);

  /// Calls `on_row` for each row as soon as it is measured.
  Status run(const std::function<void(const MoeRow&)>& on_row);

 private:
  /// One row under way.
  struct Item {
    moe::Execution execution;
    double factor = 0;
    const std::vector<MoeDraw>* draws = nullptr;  // [runs before they repeat, L]
    std::vector<double> times_us;
  };

  MoeBench(const MoeShape& shape, const MoeBenchOptions& options, Pool& pool,
           const cpu::Ceilings& ceilings);
  Status open_traffic();
  Status plan_layers();
  Status plan_capacity();
  Status check_memory() const;
  Status make_layers();
  Result<std::vector<MoeDraw>> make_draws(const moe::Traffic& traffic, int tokens,
                                          double factor) const;
  Status run_tokens(const moe::Traffic& traffic, int tokens,
                    const std::function<void(const MoeRow&)>& on_row);
  void measure(std::vector<Item>& items);
  double time_pass(const Item& item, int run);
  std::vector<std::pair<std::string, double>> measure_phases(const Item& item, int tokens);
  MoeRow make_row(const Item& item, const moe::Traffic& traffic, int tokens) const;

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
