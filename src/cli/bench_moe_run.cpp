// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_run.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/topology.h"
#include "base/trace.h"
#include "cli/bench_moe_weights.h"
#include "cli/terminal.h"
#include "engine/host_memory.h"

namespace switchyard::cli {
namespace {

constexpr int kPhaseRuns = 5;

moe::RoutedLayerSpec layer_spec(const MoeShape& shape, const MoeBenchOptions& options,
                                int max_tokens, int64_t max_capacity) {
  return {.num_slots = shape.num_slots(),
          .top_k = shape.top_k,
          .width = shape.width,
          .ffn_width = shape.ffn_width,
          .max_tokens = max_tokens,
          .max_capacity = max_capacity,
          .naive = options.runs(moe::Execution::naive),
          .weight = options.dtype};
}

}  // namespace

MoeBench::MoeBench(const MoeShape& shape, const MoeBenchOptions& options, Pool& pool,
                   const cpu::Ceilings& ceilings)
    : shape_(shape),
      options_(options),
      pool_(&pool),
      ceilings_(ceilings),
      stream_({}, pool, &tracer_),
      max_tokens_(options.most_tokens()) {}

Result<std::unique_ptr<MoeBench>> MoeBench::create(const MoeShape& shape,
                                                   const MoeBenchOptions& options, Pool& pool,
                                                   const cpu::Ceilings& ceilings) {
  std::unique_ptr<MoeBench> bench(new MoeBench(shape, options, pool, ceilings));
  SWITCHYARD_ASSIGN(bench->traffic_, open_moe_traffic(shape, options));
  SWITCHYARD_TRY(bench->plan_layers());
  SWITCHYARD_TRY(bench->check_memory());  // before many draws are made for what cannot run
  SWITCHYARD_TRY(bench->plan_capacity());
  SWITCHYARD_TRY(bench->check_memory());
  SWITCHYARD_TRY(bench->make_layers());
  return bench;
}

Status MoeBench::plan_layers() {
  constexpr int64_t kUnknownCache = int64_t{32} << 20;
  const int64_t cache = topology().l3_bytes > 0 ? topology().l3_bytes : kUnknownCache;
  SWITCHYARD_ASSIGN(num_layers_, plan_moe_layers(shape_, options_, traffic_, cache, stream_));
  return {};
}

/// How many rows padding may need for an expert.
Status MoeBench::plan_capacity() {
  if (!options_.runs(moe::Execution::padded)) return {};
  for (const moe::Traffic& traffic : traffic_)
    for (const int tokens : options_.tokens)
      for (const double factor : options_.capacities) {
        SWITCHYARD_ASSIGN(const auto draws, make_draws(traffic, tokens, factor));
        max_capacity_ = std::max(max_capacity_, mean_load(draws).max_capacity);
      }
  return {};
}

Status MoeBench::check_memory() const {
  constexpr double kUsable = 0.9;
  const moe::RoutedLayerSpec spec = layer_spec(shape_, options_, max_tokens_, max_capacity_);
  const int64_t needed =
      num_layers_ * spec.weight_bytes() + spec.step_bytes() + 8 * max_tokens_ * shape_.width;
  const int64_t available = engine::host_memory().available;
  if (available <= 0 || static_cast<double>(needed) <= kUsable * static_cast<double>(available))
    return {};
  return fail(Code::out_of_memory,
              "shape {} needs {} ({} layers of {}{}, and {} for a step{}), but {} are available: "
              "lower --layers or --tokens, or choose fewer kernels or a smaller shape",
              shape_.name, size_text(needed), num_layers_, size_text(spec.weight_bytes()),
              spec.naive ? ", twice because of naive" : "", size_text(spec.step_bytes()),
              max_capacity_ > 0 ? " with padding" : "", size_text(available));
}

Status MoeBench::make_layers() {
  const moe::RoutedLayerSpec spec = layer_spec(shape_, options_, max_tokens_, max_capacity_);
  const BenchWeights weights(shape_);
  int64_t room = 0;
  for (int l = 0; l < num_layers_; ++l) {
    SWITCHYARD_ASSIGN(moe::RoutedLayer layer, moe::RoutedLayer::create(spec));
    pool_->for_each(spec.num_slots, [&](int64_t slot, int) {
      layer.pack(static_cast<int>(slot), weights.gate(l, slot), weights.up(l, slot),
                 weights.down(l, slot));
    });
    room = layer.room(pool_->num_threads());
    layers_.push_back(std::move(layer));
  }
  if (options_.phases) {
    RouterSpec router{.num_experts = shape_.num_experts, .top_k = shape_.top_k};
    const moe::Limits limits{max_tokens_, pool_->num_threads()};
    SWITCHYARD_ASSIGN(moe::Router made, moe::Router::create(router, shape_.width, limits));
    router_ = std::make_unique<moe::Router>(std::move(made));
    router_->gate().pack(0, weights.router());
    room = std::max(room, router_->room(limits));
  }
  SWITCHYARD_ASSIGN(arena_, Arena::create(room));
  x_ = bench_noise(max_tokens_ * shape_.width, 1, 2);
  y_.assign(x_.size(), 0);
  return {};
}

Result<std::vector<MoeDraw>> MoeBench::make_draws(const moe::Traffic& traffic, int tokens,
                                                  double factor) const {
  return make_moe_draws(shape_, traffic, num_layers_, tokens, factor, stream_);
}

Status MoeBench::run(const MoeRowSink& on_row) {
  for (const moe::Traffic& traffic : traffic_)
    for (const int tokens : options_.tokens) {
      SWITCHYARD_TRY(run_tokens(traffic, tokens, on_row));
    }
  return {};
}

Status MoeBench::run_tokens(const moe::Traffic& traffic, int tokens, const MoeRowSink& on_row) {
  std::vector<std::vector<MoeDraw>> draws;
  for (const double factor : options_.capacities) {
    SWITCHYARD_ASSIGN(std::vector<MoeDraw> made, make_draws(traffic, tokens, factor));
    draws.push_back(std::move(made));
  }
  std::vector<MoeItem> items = moe_items(options_, draws);
  SWITCHYARD_TRY(measure_in_turn(
      items, options_, num_layers_,
      [this](const MoeItem& item, int run) -> Result<double> { return time_pass(item, run); }));
  for (const MoeItem& item : items) {
    MoeRow row = make_row(item, traffic, tokens);
    if (options_.phases) row.phases_us = measure_phases(item, tokens);
    on_row(row);
  }
  return {};
}

/// One pass over the layers, in microseconds of a layer.
double MoeBench::time_pass(const MoeItem& item, int run) {
  const size_t first = static_cast<size_t>(run % kMoeDrawSets) * layers_.size();
  std::fill(y_.begin(), y_.end(), 0.0f);
  const int64_t start = now_ns();
  for (size_t l = 0; l < layers_.size(); ++l) {
    const MoeDraw& draw = (*item.draws)[first + l];
    arena_.reset();
    layers_[l].forward(item.execution, x_.data(), draw.routing(), draw.capacity(), y_.data(),
                       {stream_, arena_, static_cast<int>(l)});
  }
  return static_cast<double>(now_ns() - start) * 1e-3 / static_cast<double>(layers_.size());
}

/// Runs of their own, because timing the phases costs a little.
std::vector<std::pair<std::string, double>> MoeBench::measure_phases(const MoeItem& item,
                                                                     int tokens) {
  const int routed = std::max(tokens / shape_.ranks, 1);  // a rank routes its own tokens
  tracer_.reset();
  tracer_.enable_sums(true);
  for (int run = 0; run < kPhaseRuns; ++run) {
    (void)time_pass(item, run);
    for (int l = 0; l < num_layers_; ++l) {
      arena_.reset();
      (void)router_->route(x_.data(), routed, {stream_, arena_, l});
    }
  }
  tracer_.enable_sums(false);
  std::vector<std::pair<std::string, double>> phases;
  for (const Zone zone : {Zone::router, Zone::sort, Zone::gather, Zone::gemm_up, Zone::activation,
                          Zone::gemm_down, Zone::combine})
    phases.emplace_back(zone_name(zone), tracer_.times()[zone] * 1e6 / (kPhaseRuns * num_layers_));
  return phases;
}

MoeRow MoeBench::make_row(const MoeItem& item, const moe::Traffic& traffic, int tokens) const {
  const Bound<GroupedGemm>& gemm = layers_.front().experts().gate_up().gemm();
  const bool tiles = gemm.problem().in == RowLayout::tiles_bf16;
  const MoePeaks peaks{ceilings_.read_gbps_all,
                       tiles ? ceilings_.amx_gflops : ceilings_.fma_gflops};
  MoeRow row = make_moe_row(shape_, options_, item, traffic.text(), tokens, peaks);
  row.layers = num_layers_;
  row.threads = pool_->num_threads();
  row.gemm = gemm.name();
  return row;
}

}  // namespace switchyard::cli
