// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_cuda.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/trace.h"
#include "cli/bench_moe_cuda_ceilings.h"
#include "cli/bench_moe_cuda_layers.h"

namespace switchyard::cli {
namespace {

constexpr int64_t kL2Bytes = int64_t{64} << 20;  // of the largest devices today, about
constexpr int kPhaseRuns = 9;

using Phases = std::vector<std::pair<std::string, double>>;

class MoeBenchOnCuda {
 public:
  MoeBenchOnCuda(const MoeShape& shape, const MoeBenchOptions& options, const DeviceFacts& facts,
                 const CudaCeilings& ceilings, Pool& pool, CudaStream& device)
      : shape_(shape),
        options_(options),
        facts_(facts),
        ceilings_(ceilings),
        host_({}, pool),
        device_(device) {}

  Status prepare();
  Status run(const MoeRowSink& on_row);

 private:
  /// What a row needs on the device: its draws, and a graph of each set of them.
  struct Uploaded {
    std::vector<MoeDeviceDraw> draws;  // [sets, L]
    std::vector<CudaGraph> graphs;     // [sets]
  };

  Status run_tokens(const moe::Traffic& traffic, int tokens, const MoeRowSink& on_row);
  Status upload(const MoeItem& item, Uploaded& to);
  void queue_pass(moe::Execution execution, const Uploaded& uploaded, int set,
                  const MoeParts& parts);
  Result<CudaGraph> capture(const std::function<void()>& work);
  Result<double> time_us(const std::function<void()>& work);
  Result<double> time_pass(const MoeItem& item, Uploaded& uploaded, int run);
  Result<double> median_us(moe::Execution execution, const Uploaded& uploaded,
                           const MoeParts& parts);
  Result<double> router_us(int tokens);
  Result<Phases> measure_phases(const MoeItem& item, const Uploaded& uploaded, int tokens);
  Result<Phases> naive_phases(const Uploaded& uploaded, double router_us);
  Result<Phases> stopped_phases(moe::Execution execution, const Uploaded& uploaded,
                                double router_us);

  MoeShape shape_;
  MoeBenchOptions options_;
  DeviceFacts facts_;
  CudaCeilings ceilings_;
  Stream host_;
  CudaStream& device_;
  CudaEvent begin_, end_;
  std::vector<moe::Traffic> traffic_;
  MoeDeviceLayers layers_;
};

Status MoeBenchOnCuda::prepare() {
  SWITCHYARD_ASSIGN(begin_, CudaEvent::create());
  SWITCHYARD_ASSIGN(end_, CudaEvent::create());
  SWITCHYARD_ASSIGN(traffic_, open_moe_traffic(shape_, options_));
  SWITCHYARD_ASSIGN(const int layers, plan_moe_layers(shape_, options_, traffic_, kL2Bytes, host_));
  int64_t most_rows = int64_t{options_.most_tokens()} * shape_.top_k;
  for (const moe::Traffic& traffic : traffic_) {
    if (!options_.runs(moe::Execution::padded)) break;
    for (const int tokens : options_.tokens)
      for (const double factor : options_.capacities) {
        SWITCHYARD_ASSIGN(const auto draws,
                          make_moe_draws(shape_, traffic, layers, tokens, factor, host_));
        most_rows = std::max(most_rows, mean_load(draws).max_capacity * shape_.num_slots());
      }
  }
  SWITCHYARD_ASSIGN(layers_,
                    MoeDeviceLayers::create(shape_, options_, layers, most_rows, facts_, device_));
  return {};
}

Status MoeBenchOnCuda::run(const MoeRowSink& on_row) {
  for (const moe::Traffic& traffic : traffic_)
    for (const int tokens : options_.tokens) SWITCHYARD_TRY(run_tokens(traffic, tokens, on_row));
  return {};
}

Status MoeBenchOnCuda::upload(const MoeItem& item, Uploaded& to) {
  for (const MoeDraw& draw : *item.draws) {
    SWITCHYARD_ASSIGN(MoeDeviceDraw uploaded,
                      MoeDeviceDraw::upload(draw, shape_.num_slots(), device_));
    to.draws.push_back(std::move(uploaded));
  }
  if (item.execution == moe::Execution::naive) {
    // The library chooses its algorithms when it first sees a number of rows.
    for (int set = 0; set < kMoeDrawSets; ++set) queue_pass(item.execution, to, set, {});
    return device_.synchronize("warm up");
  }
  queue_pass(item.execution, to, 0, {});  // kernels raise their limits outside of a capture
  SWITCHYARD_TRY(device_.synchronize("warm up"));
  for (int set = 0; set < kMoeDrawSets; ++set) {
    SWITCHYARD_ASSIGN(CudaGraph graph, capture([&] { queue_pass(item.execution, to, set, {}); }));
    to.graphs.push_back(std::move(graph));
  }
  return {};
}

void MoeBenchOnCuda::queue_pass(moe::Execution execution, const Uploaded& uploaded, int set,
                                const MoeParts& parts) {
  for (int l = 0; l < layers_.count(); ++l) {
    const auto at =
        static_cast<size_t>(set) * static_cast<size_t>(layers_.count()) + static_cast<size_t>(l);
    layers_.queue(execution, uploaded.draws[at], l, parts, device_);
  }
}

Result<CudaGraph> MoeBenchOnCuda::capture(const std::function<void()>& work) {
  SWITCHYARD_TRY(device_.begin_capture());
  work();
  return device_.end_capture();
}

/// Microseconds of a layer.
Result<double> MoeBenchOnCuda::time_us(const std::function<void()>& work) {
  device_.record(begin_);
  work();
  device_.record(end_);
  SWITCHYARD_TRY(device_.synchronize("run a layer"));
  SWITCHYARD_ASSIGN(const double ms, end_.ms_since(begin_));
  return ms * 1e3 / layers_.count();
}

Result<double> MoeBenchOnCuda::time_pass(const MoeItem& item, Uploaded& uploaded, int run) {
  const int set = run % kMoeDrawSets;
  if (item.execution == moe::Execution::naive) {
    return time_us([&] { queue_pass(item.execution, uploaded, set, {}); });
  }
  return time_us([&] { device_.replay(uploaded.graphs[static_cast<size_t>(set)]); });
}

Status MoeBenchOnCuda::run_tokens(const moe::Traffic& traffic, int tokens,
                                  const MoeRowSink& on_row) {
  std::vector<std::vector<MoeDraw>> draws;
  for (const double factor : options_.capacities) {
    SWITCHYARD_ASSIGN(std::vector<MoeDraw> made,
                      make_moe_draws(shape_, traffic, layers_.count(), tokens, factor, host_));
    draws.push_back(std::move(made));
  }
  std::vector<MoeItem> items = moe_items(options_, draws);
  std::map<const MoeItem*, Uploaded> uploaded;
  for (const MoeItem& item : items) SWITCHYARD_TRY(upload(item, uploaded[&item]));
  SWITCHYARD_TRY(measure_in_turn(items, options_, layers_.count(), [&](MoeItem& item, int run) {
    return time_pass(item, uploaded[&item], run);
  }));
  for (const MoeItem& item : items) {
    MoeRow row = make_moe_row(shape_, options_, item, traffic.text(), tokens,
                              {ceilings_.read_gbps, ceilings_.matmul_gflops});
    row.layers = layers_.count();
    row.threads = facts_.num_multiprocessors;
    const bool naive = item.execution == moe::Execution::naive;
    row.gemm = naive ? "dense.cuda" : layers_.kernel_for(item.execution, tokens, false).name;
    if (options_.phases) {
      SWITCHYARD_ASSIGN(row.phases_us, measure_phases(item, uploaded[&item], tokens));
    }
    on_row(row);
  }
  return {};
}

// ---- phases

Result<double> MoeBenchOnCuda::median_us(moe::Execution execution, const Uploaded& uploaded,
                                         const MoeParts& parts) {
  CudaGraph graph;
  const bool naive = execution == moe::Execution::naive;
  if (!naive) {
    queue_pass(execution, uploaded, 0, parts);  // limits, as above
    SWITCHYARD_TRY(device_.synchronize("warm up"));
    SWITCHYARD_ASSIGN(graph, capture([&] { queue_pass(execution, uploaded, 0, parts); }));
  }
  std::vector<double> times;
  for (int run = 0; run <= kPhaseRuns; ++run) {
    SWITCHYARD_ASSIGN(const double us, time_us([&] {
                        if (naive) return queue_pass(execution, uploaded, 0, parts);
                        device_.replay(graph);
                      }));
    if (run > 0) times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  return median(times);
}

Result<double> MoeBenchOnCuda::router_us(int tokens) {
  const auto pass = [&] {
    for (int l = 0; l < layers_.count(); ++l) layers_.queue_router(tokens, device_);
  };
  pass();
  SWITCHYARD_TRY(device_.synchronize("warm up"));
  SWITCHYARD_ASSIGN(const CudaGraph graph, capture(pass));
  std::vector<double> times;
  for (int run = 0; run < kPhaseRuns; ++run) {
    SWITCHYARD_ASSIGN(const double us, time_us([&] { device_.replay(graph); }));
    times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  return median(times);
}

Phases phases_of(const std::array<double, 7>& us) {
  constexpr std::array kZones = {Zone::router,     Zone::sort,      Zone::gather, Zone::gemm_up,
                                 Zone::activation, Zone::gemm_down, Zone::combine};
  Phases phases;
  for (size_t i = 0; i < us.size(); ++i)
    phases.emplace_back(zone_name(kZones[i]), std::max(us[i], 0.0));
  return phases;
}

Result<Phases> MoeBenchOnCuda::measure_phases(const MoeItem& item, const Uploaded& uploaded,
                                              int tokens) {
  // Routing makes the picks and the order of rows; the latter is the phase `sort`.
  const int routed = std::max(tokens / shape_.ranks, 1);  // a rank routes its own tokens
  SWITCHYARD_ASSIGN(const double router, router_us(routed));
  if (item.execution == moe::Execution::naive) return naive_phases(uploaded, router);
  return stopped_phases(item.execution, uploaded, router);
}

Result<Phases> MoeBenchOnCuda::stopped_phases(moe::Execution execution, const Uploaded& uploaded,
                                              double router_us) {
  using enum MoeFfn::Stop;
  SWITCHYARD_ASSIGN(const double plan,
                    median_us(execution, uploaded, {.up = false, .split = true}));
  SWITCHYARD_ASSIGN(const double up,
                    median_us(execution, uploaded, {.stop = after_up, .split = true}));
  SWITCHYARD_ASSIGN(const double down,
                    median_us(execution, uploaded, {.stop = after_down, .split = true}));
  SWITCHYARD_ASSIGN(const double all, median_us(execution, uploaded, {.split = true}));
  return phases_of({router_us - plan, plan, 0, up - plan, 0, down - up, all - down});
}

Result<Phases> MoeBenchOnCuda::naive_phases(const Uploaded& uploaded, double router_us) {
  const auto only = [&](bool MoeParts::*part) {
    MoeParts parts{.gather = false, .up = false, .activation = false, .down = false, .add = false};
    parts.*part = true;
    return median_us(moe::Execution::naive, uploaded, parts);
  };
  SWITCHYARD_ASSIGN(const double gather, only(&MoeParts::gather));
  SWITCHYARD_ASSIGN(const double up, only(&MoeParts::up));
  SWITCHYARD_ASSIGN(const double activation, only(&MoeParts::activation));
  SWITCHYARD_ASSIGN(const double down, only(&MoeParts::down));
  SWITCHYARD_ASSIGN(const double add, only(&MoeParts::add));
  return phases_of({router_us, 0, gather, up, activation, down, add});
}

}  // namespace

Status bench_moe_on_cuda(const std::vector<MoeShape>& shapes, const MoeBenchOptions& options,
                         const std::string& ceilings, int device, Pool& pool,
                         const MoeRowSink& on_row) {
  SWITCHYARD_ASSIGN(CudaStream stream, CudaStream::open(device));
  SWITCHYARD_ASSIGN(const std::vector<DeviceFacts> devices, cuda_devices());
  const DeviceFacts& facts = devices[static_cast<size_t>(device)];
  SWITCHYARD_ASSIGN(const CudaCeilings measured, load_cuda_ceilings(ceilings, facts, stream));
  for (const MoeShape& shape : shapes) {
    MoeBenchOnCuda bench(shape, options, facts, measured, pool, stream);
    SWITCHYARD_TRY(bench.prepare());
    SWITCHYARD_TRY(bench.run(on_row));
  }
  return {};
}

}  // namespace switchyard::cli
