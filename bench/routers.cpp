// SPDX-License-Identifier: Apache-2.0
// What routing costs beside the layer that it serves: the route operation on random logits, by the shapes of known
// models; with SWITCHYARD_KERNEL=route=ref the selectors of moe/route. One JSON line per model and number of tokens:
//
//   median_us   time of one call, all threads
//   layer_us    the layer's floor: the larger of the bytes of the touched experts over the measured read bandwidth and
//               the operations over the measured peak (bf16)
//   share       median_us / layer_us
//
// Usage: bench_routers [THREADS]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "base/trace.h"
#include "device/cpu_features.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/select.h"
#include "moe/route/table.h"

namespace switchyard::bench {
namespace {

struct Model {
  std::string_view name;
  RouterSpec router;
  double width, expert_width;
};

std::vector<Model> models() {
  const auto spec = [](int num_experts, int top_k, Weigh weigh) {
    RouterSpec s{.num_experts = num_experts, .top_k = top_k};
    s.weigh = weigh;
    return s;
  };
  RouterSpec v3 = spec(256, 8, Weigh::renormalize), m2 = v3, phi = spec(16, 2, Weigh::raw);
  v3.score = m2.score = Score::sigmoid;
  v3.selection_bias = m2.selection_bias = true;
  v3.num_groups = 8, v3.top_groups = 4, v3.group_score = GroupScore::sum_top_2;
  phi.selector = "sparsemixer", phi.jitter = 0.01f;
  RouterSpec v2 = spec(64, 6, Weigh::raw);
  return {{"mixtral-8x7b", spec(8, 2, Weigh::renormalize), 4096, 14336},
          {"granite-3.0-1b", spec(32, 8, Weigh::softmax_after_top_k), 1024, 512},
          {"olmoe", spec(64, 8, Weigh::raw), 2048, 1024},
          {"deepseek-v2-lite", v2, 2048, 1408},
          {"qwen3-30b-a3b", spec(128, 8, Weigh::renormalize), 2048, 768},
          {"minimax-m2", m2, 3072, 1536},
          {"deepseek-v3", v3, 7168, 2048},
          {"phi-3.5-moe", phi, 4096, 6400}};
}

std::vector<float> make_logits(size_t count) {
  std::vector<float> logits;
  for (uint32_t i = 0; logits.size() < count; ++i) {
    const PhiloxBlock words = philox4x32({i, 0, 0, 0}, {1, 2});
    const double radius = std::sqrt(-2 * std::log(1 - unit_double(words[0], words[1])));
    logits.push_back(
        static_cast<float>(radius * std::cos(6.2831853 * unit_double(words[2], words[3]))));
  }
  return logits;
}

double layer_us(const Model& model, double tokens, const cpu::Ceilings& ceilings) {
  const double experts = model.router.num_experts, picks = model.router.top_k;
  const double touched = experts * (1 - std::pow(1 - picks / experts, tokens));
  const double matrices = 3 * model.width * model.expert_width;
  const double peak = std::max(ceilings.amx_gflops, ceilings.fma_gflops);
  return std::max(touched * matrices * 2 / ceilings.read_gbps_all,
                  2 * matrices * picks * tokens / peak) *
         1e-3;
}

void run(const Model& model, int tokens, const cpu::Ceilings& ceilings, const Stream& stream) {
  const RouterSpec& spec = model.router;
  const moe::Selector& selector = **moe::find_selector(spec.selector);
  const Result<Bound<Route>> bound = kernels::select<Route>({spec, selector.select});
  if (!bound.ok()) {
    fmt::print(stderr, "{}: {}\n", model.name, bound.error().message);  // a pinned kernel refuses
    return;
  }
  const Bound<Route>& route = *bound;
  // Calls walk over many tokens: a processor learns the branches of a few by heart.
  const int windows = 1 + 8192 / tokens;
  const std::vector<float> logits =
      make_logits(static_cast<size_t>(windows) * tokens * spec.num_experts);
  const std::vector<float> bias(static_cast<size_t>(spec.num_experts), 0.01f);
  std::vector<int32_t> expert(static_cast<size_t>(tokens) * spec.top_k);
  std::vector<float> weight(expert.size());
  SelectInput in{.tokens = tokens};
  if (spec.selection_bias) in.bias = bias.data();
  std::vector<double> times;
  int64_t unusable_rows = 0;
  for (int i = 0; i < std::max(200, windows); ++i) {
    in.logits = logits.data() + int64_t{i % windows} * tokens * spec.num_experts;
    const int64_t start = now_ns();
    route.run({in, {expert.data(), weight.data()}, &unusable_rows}, {}, stream);
    times.push_back(static_cast<double>(now_ns() - start) * 1e-3);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double layer = layer_us(model, tokens, ceilings);
  fmt::print(
      R"({{"model":"{}","kernel":"{}","experts":{},"picks":{},"tokens":{},"threads":{},"median_us":{:.2f},"us_per_token":{:.3f},"layer_us":{:.0f},"share":{:.5f}}})"
      "\n",
      model.name, route.name(), spec.num_experts, spec.top_k, tokens, stream.pool().num_threads(),
      median, median / tokens, layer, median / layer);
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  using namespace switchyard;
  Pool pool({.num_threads = argc > 1 ? std::atoi(argv[1]) : 0});
  const Result<cpu::Ceilings> measured = cpu::measure_ceilings(pool);
  if (!measured.ok()) {
    fmt::print(stderr, "{}\n", measured.error().message);
    return 1;
  }
  const cpu::Ceilings& ceilings = *measured;
  fmt::print(
      R"({{"cpu":"{}","threads":{},"read_gbps":{:.1f},"amx_gflops":{:.0f},"fma_gflops":{:.0f}}})"
      "\n",
      cpu_features().model, pool.num_threads(), ceilings.read_gbps_all, ceilings.amx_gflops,
      ceilings.fma_gflops);
  for (const bench::Model& model : bench::models()) {
    for (const int tokens : {1, 16, 64, 512}) bench::run(model, tokens, ceilings, {{}, pool});
  }
  return 0;
}
