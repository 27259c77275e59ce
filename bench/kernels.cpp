// SPDX-License-Identifier: Apache-2.0
// MoE layers alone, through the operations that the engine runs: plan, gather, gate-up, down,
// combine. Routing is given (uniform, without repetition inside a token) and changes with every run
// and layer.
//
//   x [T, D] -> for each of L layers: y [T, D] += sum over K of weight * down(silu(gate x) * (up
//   x))
//
// Prints one JSON object a line for each T, after one with the machine's ceilings. The floor of a
// line is the larger of the time to read the touched experts' weights at the measured bandwidth and
// of the arithmetic at the measured peak. Shapes, routing and the meaning of a run are those of
// baselines/peer_ggml_moe.cpp: put the two side by side with compare.py.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/trace.h"
#include "baselines/splitmix64.h"
#include "device/cpu_features.h"
#include "kernels/cpu/ceilings.h"
#include "moe/exchange/local.h"
#include "moe/experts.h"
#include "moe/plan.h"

namespace switchyard::bench {
namespace {

struct Shape {
  std::string_view name;
  int experts, picks, width, expert_width;
};
constexpr Shape kShapes[] = {
    {"olmoe", 64, 8, 2048, 1024},
    {"mixtral-like", 8, 2, 2048, 7168},
    {"qwen3-30b-a3b", 128, 8, 2048, 768},
    {"tiny", 8, 2, 256, 512},
};

struct Options {
  Shape shape = kShapes[0];
  DType dtype = DType::bf16;
  std::vector<int> tokens = {1, 16, 64, 512};
  int threads = 0, layers = 4, runs = 0;  // runs 0: 200 at one token, 24 below 128, else 8
};

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "bench_kernels: {}\n", message);
  std::exit(2);
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) fail(result.error().message);
  return *std::move(result);
}

// K different experts for each of T tokens: the first K steps of a Fisher-Yates shuffle.
std::vector<int32_t> draw_routing(const Shape& shape, int tokens, uint64_t seed) {
  SplitMix64 random{seed};
  std::vector<int32_t> ids, deck(static_cast<size_t>(shape.experts));
  for (int t = 0; t < tokens; ++t) {
    for (int e = 0; e < shape.experts; ++e) deck[e] = e;
    for (int k = 0; k < shape.picks; ++k) {
      std::swap(deck[k], deck[k + random.next() % (shape.experts - k)]);
      ids.push_back(deck[k]);
    }
  }
  return ids;
}

// Sum of four uniforms, scaled to the standard deviation wanted: normal enough for a speed test.
std::vector<float> make_noise(size_t count, double deviation, uint64_t seed) {
  SplitMix64 random{seed};
  std::vector<float> noise(count);
  for (float& value : noise) {
    const uint64_t bits = random.next();
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xFFFF) - 0x8000;
    value = static_cast<float>(sum * deviation / 37837);  // 65536 / sqrt(3)
  }
  return noise;
}

// The weights before packing: every matrix is a window of one piece of noise.
class Noise {
 public:
  explicit Noise(const Shape& shape)
      : matrix_(int64_t{shape.width} * shape.expert_width),
        values_(static_cast<size_t>(2 * matrix_)) {
    const std::vector<float> noise = make_noise(values_.size(), 0.02, 1);
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = to_bf16(noise[i]);
  }
  // Matrix `part` (gate, up, down) of an expert of a layer, [n, k].
  TensorView matrix(int layer, int expert, int part, int64_t n, int64_t k) const {
    SplitMix64 random{static_cast<uint64_t>((layer * 1000 + expert) * 3 + part)};
    const auto start = static_cast<int64_t>(random.next() % static_cast<uint64_t>(matrix_));
    return TensorView::of(values_.data() + start, {n, k});
  }

 private:
  int64_t matrix_;
  std::vector<Bf16> values_;
};

struct Layer {
  moe::Experts experts;
  std::unique_ptr<moe::Exchange> exchange;
};

// Everything that a run needs.
class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        pool_({.num_threads = options.threads}),
        stream_({}, pool_, &tracer_),
        noise_(options.shape) {
    const int max_tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
    const moe::Limits limits{max_tokens, pool_.num_threads()};
    for (int l = 0; l < options.layers; ++l) layers_.push_back(make_layer(l, limits));
    const Layer& layer = layers_.front();
    arena_ = take(Arena::create(
        moe::plan_room(max_tokens, options.shape.picks, options.shape.experts) +
        layer.exchange->room(limits) + layer.experts.room(pool_.num_threads()) + (1 << 20)));
    x_ = make_noise(static_cast<size_t>(max_tokens) * options.shape.width, 1, 2);
    y_.resize(x_.size());
    pick_weight_.assign(static_cast<size_t>(max_tokens) * options.shape.picks,
                        1.0f / static_cast<float>(options.shape.picks));
  }

  void print_ceilings() {
    ceilings_ = take(cpu::measure_ceilings(pool_));
    fmt::print(
        "{{\"engine\":\"switchyard\",\"ceilings\":{{\"read_gbps_one\":{:.1f},\"read_gbps_all\":{:."
        "1f},"
        "\"amx_gflops\":{:.0f},\"fma_gflops\":{:.0f}}},\"threads\":{},\"cpu\":\"{}\",\"isa\":\"{}"
        "\"}}\n",
        ceilings_.read_gbps_one, ceilings_.read_gbps_all, ceilings_.amx_gflops,
        ceilings_.fma_gflops, pool_.num_threads(), cpu_features().model,
        isa_level_name(cpu_features().usable));
    std::fflush(stdout);
  }

  void run(int tokens) {
    constexpr int kWarmUp = 2;
    const int runs = options_.runs > 0 ? options_.runs : tokens == 1 ? 200 : tokens < 128 ? 24 : 8;
    std::vector<double> times;
    double touched = 0;  // experts of all layers, on average over the runs
    for (int run = 0; run < runs + kWarmUp; ++run) {
      for (int l = 0; l < options_.layers; ++l) set_routing(l, tokens, run);
      std::fill_n(y_.begin(), static_cast<int64_t>(tokens) * options_.shape.width, 0.0f);
      const int64_t start = now_ns();
      for (int l = 0; l < options_.layers; ++l) forward(l, tokens);
      const int64_t end = now_ns();
      if (run < kWarmUp) continue;
      times.push_back(static_cast<double>(end - start) * 1e-6);
      for (const auto& load : loads_) {
        touched +=
            static_cast<double>(std::ranges::count_if(load, [](int n) { return n > 0; })) / runs;
      }
    }
    std::sort(times.begin(), times.end());
    const double error = error_of_last_token(tokens);  // before other runs add to y
    print(tokens, times, touched, error, phases(tokens));
  }

 private:
  // Milliseconds of each phase over all layers, from a few runs of their own: tracing costs a little.
  std::string phases(int tokens) {
    constexpr int kRuns = 4;
    tracer_.reset();
    tracer_.enable_sums(true);
    for (int run = 0; run < kRuns; ++run) {
      for (int l = 0; l < options_.layers; ++l) forward(l, tokens);
    }
    tracer_.enable_sums(false);
    std::string text;
    for (const Zone zone : {Zone::sort, Zone::gather, Zone::gemm_up, Zone::activation,
                            Zone::gemm_down, Zone::combine}) {
      text += fmt::format("{}\"{}\":{:.3f}", text.empty() ? "" : ",", zone_name(zone),
                          tracer_.times()[zone] * 1e3 / kRuns);
    }
    return text;
  }

  Layer make_layer(int index, const moe::Limits& limits) {
    const Shape& s = options_.shape;
    const int64_t rows = limits.max_tokens * s.picks;
    Layer layer{
        take(moe::Experts::create({s.experts, s.width, s.expert_width, rows, options_.dtype})),
        nullptr};
    layer.exchange =
        take(moe::make_local_exchange({s.experts, s.picks, s.width, rows, layer.experts.in()}));
    pool_.for_each(s.experts, [&](int64_t e, int) {
      const int expert = static_cast<int>(e);
      const TensorView gate = noise_.matrix(index, expert, 0, s.expert_width, s.width);
      const TensorView up = noise_.matrix(index, expert, 1, s.expert_width, s.width);
      layer.experts.gate_up().pack(expert, gate, &up);
      layer.experts.down().pack(expert, noise_.matrix(index, expert, 2, s.width, s.expert_width));
    });
    return layer;
  }

  void set_routing(int layer, int tokens, int run) {
    routing_.resize(layers_.size());
    loads_.resize(layers_.size());
    routing_[layer] =
        draw_routing(options_.shape, tokens, 1000003u * static_cast<unsigned>(run) + layer);
    loads_[layer].assign(static_cast<size_t>(options_.shape.experts), 0);
    for (const int32_t expert : routing_[layer]) ++loads_[layer][expert];
  }

  void forward(int index, int tokens) {
    const Shape& s = options_.shape;
    const Layer& layer = layers_[index];
    const moe::Step step{stream_, arena_, index};
    arena_.reset();
    const Routing routing{TensorView::of(routing_[index].data(), {tokens, s.picks}),
                          TensorView::of(pick_weight_.data(), {tokens, s.picks}),
                          TensorView::of(loads_[index].data(), {s.experts}),
                          TensorView::of(loads_[index].data(), {s.experts}),
                          {}};
    const moe::DispatchPlan plan = moe::plan_local(routing, step);
    layer.exchange->begin_dispatch(x_.data(), plan, step);
    const void* rows = layer.exchange->finish_dispatch(plan, step);
    const float* out = layer.experts.forward(rows, plan, step);
    layer.exchange->combine(out, routing, plan, {}, 1, y_.data(), step);
  }

  // Relative error of the last token against f64 on the weights before packing; all layers add to
  // the same y.
  double error_of_last_token(int tokens) const {
    const Shape& s = options_.shape;
    const float* x = x_.data() + static_cast<int64_t>(tokens - 1) * s.width;
    const auto row_dot = [](const TensorView& w, int64_t n, const auto* v) {
      const Bf16* row = w.as<const Bf16>() + n * w.stride[0];
      double sum = 0;
      for (int64_t i = 0; i < w.shape[1]; ++i) {
        sum += static_cast<double>(to_float(row[i])) * static_cast<double>(v[i]);
      }
      return sum;
    };
    std::vector<double> y(static_cast<size_t>(s.width)),
        hidden(static_cast<size_t>(s.expert_width));
    for (int l = 0; l < options_.layers; ++l) {
      for (int k = 0; k < s.picks; ++k) {
        const int expert = routing_[l][static_cast<size_t>(tokens - 1) * s.picks + k];
        const TensorView gate = noise_.matrix(l, expert, 0, s.expert_width, s.width);
        const TensorView up = noise_.matrix(l, expert, 1, s.expert_width, s.width);
        const TensorView down = noise_.matrix(l, expert, 2, s.width, s.expert_width);
        for (int64_t f = 0; f < s.expert_width; ++f) {
          const double g = row_dot(gate, f, x);
          hidden[f] = g / (1 + std::exp(-g)) * row_dot(up, f, x);
        }
        for (int64_t d = 0; d < s.width; ++d) y[d] += row_dot(down, d, hidden.data()) / s.picks;
      }
    }
    double error = 0, norm = 0;
    for (int64_t d = 0; d < s.width; ++d) {
      const double found = static_cast<double>(y_[static_cast<size_t>(tokens - 1) * s.width + d]);
      error += (found - y[d]) * (found - y[d]);
      norm += y[d] * y[d];
    }
    return std::sqrt(error / norm);
  }

  void print(int tokens, const std::vector<double>& times, double touched, double error,
             const std::string& phases_ms) const {
    const Shape& s = options_.shape;
    const auto& gemm = std::as_const(layers_.front().experts).gate_up().gemm();
    const double matrices = 3.0 * s.width * s.expert_width;
    const double bytes = touched * matrices * dtype_bytes(options_.dtype);
    const double flops = 2 * matrices * s.picks * tokens * options_.layers;
    const bool tiles = gemm.problem().in == RowLayout::tiles_bf16;
    const double peak = tiles ? ceilings_.amx_gflops : ceilings_.fma_gflops;
    const size_t half = times.size() / 2;
    const double median = times.size() % 2 != 0 ? times[half] : (times[half - 1] + times[half]) / 2;
    const double floor_ms = std::max(bytes / ceilings_.read_gbps_all, flops / peak) * 1e-6;
    const std::string what = fmt::format(
        R"("engine":"switchyard","shape":"{}","tokens":{},"dtype":"{}","kernel":"{}","threads":{},"layers":{})",
        s.name, tokens, dtype_name(options_.dtype), gemm.name(), pool_.num_threads(),
        options_.layers);
    const std::string rates = fmt::format(
        R"("gbps":{:.1f},"gflops":{:.0f},"floor_ms":{:.3f},"measured_over_floor":{:.3f})",
        bytes / median * 1e-6, flops / median * 1e-6, floor_ms, median / floor_ms);
    fmt::print(
        R"({{{},"median_ms":{:.3f},"best_ms":{:.3f},"runs":{},{},"relative_error":{:.2e},"phases_ms":{{{}}}}})"
        "\n",
        what, median, times.front(), times.size(), rates, error, phases_ms);
    std::fflush(stdout);
  }

  Options options_;
  Pool pool_;
  Tracer tracer_;
  Stream stream_;
  Noise noise_;
  std::vector<Layer> layers_;
  Arena arena_;
  cpu::Ceilings ceilings_;
  std::vector<float> x_, y_, pick_weight_;             // [T, D], [T, D], [T, K]
  std::vector<std::vector<int32_t>> routing_, loads_;  // of each layer: [T, K], [E]
};

std::vector<int> parse_numbers(std::string_view key, std::string_view text) {
  std::vector<int> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc() || end != text.data() + comma || value < 1) {
      fail(fmt::format("{} wants positive numbers, found '{}'", key, text));
    }
    numbers.push_back(value);
    at = comma + 1;
  }
  return numbers;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view key = argv[i];
    if (i + 1 == argc || key == "--help") {
      fail(
          "options: --shape olmoe|mixtral-like|qwen3-30b-a3b|tiny --dtype f32|bf16 --tokens "
          "1,16,64,512 "
          "--threads N --layers N --runs N --kernel ref|naive|amx_bf16|avx512_bf16|avx2_bf16|...");
    }
    const std::string_view value = argv[i + 1];
    if (key == "--shape") {
      const auto* found =
          std::ranges::find_if(kShapes, [&](const Shape& s) { return s.name == value; });
      if (found == std::end(kShapes)) fail(fmt::format("unknown --shape {}", value));
      options.shape = *found;
    } else if (key == "--dtype") {
      if (value != "f32" && value != "bf16") fail(fmt::format("unknown --dtype {}", value));
      options.dtype = value == "f32" ? DType::f32 : DType::bf16;
    } else if (key == "--tokens") {
      options.tokens = parse_numbers(key, value);
    } else if (key == "--threads") {
      options.threads = parse_numbers(key, value)[0];
    } else if (key == "--layers") {
      options.layers = parse_numbers(key, value)[0];
    } else if (key == "--runs") {
      options.runs = parse_numbers(key, value)[0];
    } else if (key == "--kernel") {
      setenv("SWITCHYARD_KERNEL", fmt::format("grouped_gemm={}", value).c_str(), 1);
    } else {
      fail(fmt::format("unknown option {}", key));
    }
  }
  return options;
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  using namespace switchyard::bench;
  const Options options = parse_options(argc, argv);
  Bench bench(options);
  bench.print_ceilings();
  for (const int tokens : options.tokens) bench.run(tokens);
  return 0;
}
