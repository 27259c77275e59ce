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

constexpr int kDrawSets = 8;  // different routings of a row; later runs repeat them
constexpr int kMinRuns = 5, kMaxRuns = 200, kPhaseRuns = 5;
constexpr double kRowSeconds = 0.4;

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double quantile(const std::vector<double>& sorted, double at) {
  return sorted[static_cast<size_t>(std::lround(at * static_cast<double>(sorted.size() - 1)))];
}

bool contains(const std::vector<moe::Execution>& executions, moe::Execution execution) {
  return std::find(executions.begin(), executions.end(), execution) != executions.end();
}

moe::RoutedLayerSpec layer_spec(const MoeShape& shape, const MoeBenchOptions& options,
                                int max_tokens, int64_t max_capacity) {
  return {.num_slots = shape.num_slots(),
          .top_k = shape.top_k,
          .width = shape.width,
          .ffn_width = shape.ffn_width,
          .max_tokens = max_tokens,
          .max_capacity = max_capacity,
          .naive = contains(options.executions, moe::Execution::naive),
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
      max_tokens_(*std::max_element(options.tokens.begin(), options.tokens.end())) {}

Result<std::unique_ptr<MoeBench>> MoeBench::create(const MoeShape& shape,
                                                   const MoeBenchOptions& options, Pool& pool,
                                                   const cpu::Ceilings& ceilings) {
  std::unique_ptr<MoeBench> bench(new MoeBench(shape, options, pool, ceilings));
  SWITCHYARD_TRY(bench->open_traffic());
  SWITCHYARD_TRY(bench->plan_layers());
  SWITCHYARD_TRY(bench->check_memory());  // before many draws are made for what cannot run
  SWITCHYARD_TRY(bench->plan_capacity());
  SWITCHYARD_TRY(bench->check_memory());
  SWITCHYARD_TRY(bench->make_layers());
  return bench;
}

Status MoeBench::open_traffic() {
  for (const std::string& text : options_.routings) {
    SWITCHYARD_ASSIGN(moe::Traffic traffic,
                      moe::Traffic::open(text, shape_.num_experts, shape_.top_k, options_.seed));
    traffic_.push_back(std::move(traffic));
  }
  return {};
}

/// How many copies of the layer leave the caches, by what the smallest step touches.
Status MoeBench::plan_layers() {
  constexpr int64_t kCacheFactor = 4, kUnknownCache = int64_t{32} << 20;
  const int64_t cache = topology().l3_bytes > 0 ? topology().l3_bytes : kUnknownCache;
  const int fewest = *std::min_element(options_.tokens.begin(), options_.tokens.end());
  for (const moe::Traffic& traffic : traffic_) {
    SWITCHYARD_ASSIGN(const MoeDraw draw, MoeDraw::make(shape_, traffic, 0, fewest, 0, 0, stream_));
    const int64_t bytes =
        std::max(draw.touched(), 1) * shape_.expert_parameters() * dtype_bytes(options_.dtype);
    const int64_t wanted = (kCacheFactor * cache + bytes - 1) / bytes;
    num_layers_ = std::max(num_layers_, static_cast<int>(std::min<int64_t>(wanted, shape_.layers)));
  }
  if (options_.layers > 0) num_layers_ = options_.layers;
  return {};
}

/// How many rows padding may need for an expert.
Status MoeBench::plan_capacity() {
  if (!contains(options_.executions, moe::Execution::padded)) return {};
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
  std::vector<MoeDraw> draws;
  for (int set = 0; set < kDrawSets; ++set)
    for (int l = 0; l < num_layers_; ++l) {
      SWITCHYARD_ASSIGN(MoeDraw draw, MoeDraw::make(shape_, traffic, l, tokens,
                                                    static_cast<uint32_t>(set), factor, stream_));
      draws.push_back(std::move(draw));
    }
  return draws;
}

Status MoeBench::run(const std::function<void(const MoeRow&)>& on_row) {
  for (const moe::Traffic& traffic : traffic_)
    for (const int tokens : options_.tokens) {
      SWITCHYARD_TRY(run_tokens(traffic, tokens, on_row));
    }
  return {};
}

Status MoeBench::run_tokens(const moe::Traffic& traffic, int tokens,
                            const std::function<void(const MoeRow&)>& on_row) {
  std::vector<std::vector<MoeDraw>> draws;
  for (const double factor : options_.capacities) {
    SWITCHYARD_ASSIGN(std::vector<MoeDraw> made, make_draws(traffic, tokens, factor));
    draws.push_back(std::move(made));
  }
  std::vector<Item> items;
  for (size_t c = 0; c < draws.size(); ++c)
    for (const moe::Execution execution : options_.executions)
      items.push_back({execution, options_.capacities[c], &draws[c], {}});
  measure(items);
  for (const Item& item : items) {
    MoeRow row = make_row(item, traffic, tokens);
    if (options_.phases) row.phases_us = measure_phases(item, tokens);
    on_row(row);
  }
  return {};
}

/// One pass over the layers, in microseconds of a layer.
double MoeBench::time_pass(const Item& item, int run) {
  const size_t first = static_cast<size_t>(run % kDrawSets) * layers_.size();
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

void MoeBench::measure(std::vector<Item>& items) {
  for (const Item& item : items) (void)time_pass(item, 0);
  double seconds = 0;
  const double enough = kRowSeconds * static_cast<double>(items.size());
  const int least = options_.repeats > 0 ? options_.repeats : kMinRuns;
  const int most = options_.repeats > 0 ? options_.repeats : kMaxRuns;
  for (int run = 0; run < least || (run < most && seconds < enough); ++run)
    for (Item& item : items) {
      item.times_us.push_back(time_pass(item, run));
      seconds += item.times_us.back() * 1e-6 * num_layers_;
    }
  for (Item& item : items) std::sort(item.times_us.begin(), item.times_us.end());
}

/// Runs of their own, because timing the phases costs a little.
std::vector<std::pair<std::string, double>> MoeBench::measure_phases(const Item& item, int tokens) {
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

MoeRow MoeBench::make_row(const Item& item, const moe::Traffic& traffic, int tokens) const {
  const MoeLoad load = mean_load(*item.draws);
  const Bound<GroupedGemm>& gemm = layers_.front().experts().gate_up().gemm();
  const bool tiles = gemm.problem().in == RowLayout::tiles_bf16;
  const double peak_gflops = tiles ? ceilings_.amx_gflops : ceilings_.fma_gflops;
  const auto parameters = static_cast<double>(shape_.expert_parameters());
  const double bytes = load.touched * parameters * dtype_bytes(options_.dtype);
  const double flops = 2 * parameters * load.kept_picks;
  MoeRow row;
  row.shape = shape_.name;
  row.tokens = tokens;
  row.routing = traffic.text();
  row.dtype = dtype_name(options_.dtype);
  row.kernel = moe::execution_name(item.execution);
  row.time_us = median(item.times_us);
  row.floor_us =
      1e-3 * std::max(bytes / ceilings_.read_gbps_all, peak_gflops > 0 ? flops / peak_gflops : 0.0);
  row.experts_touched = load.touched;
  row.imbalance = load.imbalance;
  row.drop_rate = load.picks > 0 ? 1 - load.kept_picks / load.picks : 0;
  row.gbps = bytes / row.time_us * 1e-3;
  row.gflops = flops / row.time_us * 1e-3;
  row.capacity = item.factor;
  row.time_spread = (quantile(item.times_us, 0.75) - quantile(item.times_us, 0.25)) / row.time_us;
  row.best_us = item.times_us.front();
  row.rows = load.kept_picks;
  if (item.execution == moe::Execution::padded) row.rows = shape_.num_slots() * load.mean_capacity;
  row.runs = static_cast<int>(item.times_us.size());
  row.layers = num_layers_;
  row.threads = pool_->num_threads();
  row.gemm = gemm.name();
  return row;
}

}  // namespace switchyard::cli
