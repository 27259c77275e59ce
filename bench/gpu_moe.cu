// SPDX-License-Identifier: Apache-2.0
// The MoE layer on a device, from logits to the residual stream: every entry of the table beside the floor.
//
//   bench_gpu_moe [--jsonl FILE] [--shape NAME] [--tokens T] [--entry TEXT] [--peak-tflops P] [--quick]
//
// A row is one shape, T and routing. Times are medians of graph replays, in us for a layer; each graph goes round
// several inputs and two full copies of the weights, so that weights come from memory.
//   floor   the larger of bytes / read bandwidth (both measured here, in this run) and FLOP / peak
//   stream  a probe that only pulls the hit experts' weights through shared memory: what the memory gives in one launch
//   route   the route kernels alone
//   placed  of the record: whether weights lie by the sides of the L2 (kernels/ops/l2_sides.h)
//   zipf, sprd.5, sprd1, sprd2   uneven routing, see Popularity; all else is uniform
// Entries are compared with the last one (which suits all T); a row whose results differ says so and the program fails.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "gpu_memory.cuh"
#include "gpu_weights.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/ops/moe_ffn.h"

namespace {

using switchyard::DeviceRouting;
using switchyard::MoeFfn;
using switchyard::MoePack;
using switchyard::MoeRoute;
using switchyard::RouteRule;
namespace cuda = switchyard::cuda;

using switchyard::bench::Memory;
using switchyard::bench::must;

// ---- data

__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
__device__ float uniform_at(int64_t i, uint32_t seed) {
  const uint32_t bits =
      mixed(static_cast<uint32_t>(i) ^ mixed(seed + static_cast<uint32_t>(i >> 32)));
  return (static_cast<float>(bits >> 8) + 0.5f) / 16777216.0f;
}
__device__ float normal_at(int64_t i, uint32_t seed) {
  return sqrtf(-2.0f * logf(uniform_at(i, seed))) * cospif(2.0f * uniform_at(i, seed + 1));
}
__global__ void fill_normals(__nv_bfloat16* to, int64_t count, float deviation, uint32_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    to[i] = __float2bfloat16(deviation * normal_at(i, seed));
  }
}
// Who gets how much. `zipf`: popularity rank^-zipf. `spread`: how far experts' mean logits are apart, in deviations of one
// expert's logits between tokens.
struct Popularity {
  float zipf = 0, spread = 0;
};

// Gumbel noise over a popularity of rank^-zipf: the best K are a draw without replacement. With a spread, normal noise around
// normal means instead, as the gates of a prompt have it whose tokens have much in common.
__global__ void fill_logits(float* to, int64_t count, int experts, Popularity popularity,
                            uint32_t seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  if (popularity.spread > 0) {
    to[i] = popularity.spread * normal_at(i % experts, seed + 2) + normal_at(i, seed);
    return;
  }
  const auto rank = static_cast<float>(i % experts + 1);
  to[i] = -popularity.zipf * logf(rank) - logf(-logf(uniform_at(i, seed)));
}

// Memory that lives as long as the program's current shape.
// ---- the stream probe: hit experts through a ring of bulk copies, read once by 128 threads

constexpr int kChunk = 16384, kRing = 12, kReaders = 128;

__global__ void __launch_bounds__(kReaders + 32, 1)
    stream(const char* w13, const char* w2, int64_t w13_bytes, int64_t w2_bytes, const int32_t* hit,
           const int32_t* num_hit, uint32_t* sink) {
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[kRing], empty[kRing];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRing) {
    cuda::barrier_init(cuda::shared_address(&full[thread]), 1);
    cuda::barrier_init(cuda::shared_address(&empty[thread]), kReaders);
    cuda::barrier_init_done();
  }
  __syncthreads();
  const int64_t in13 = w13_bytes / kChunk, in2 = w2_bytes / kChunk;
  const int64_t first2 = *num_hit * in13, all = first2 + *num_hit * in2;
  int slot = 0;
  uint32_t parity = 0, sum = 0;
  for (int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    char* const at = ring + slot * kChunk;
    const uint32_t arrived = cuda::shared_address(&full[slot]);
    if (thread == kReaders) {
      const int64_t j = i - first2;
      const char* from = i < first2 ? w13 + hit[i / in13] * w13_bytes + i % in13 * kChunk
                                    : w2 + hit[j / in2] * w2_bytes + j % in2 * kChunk;
      cuda::barrier_wait(cuda::shared_address(&empty[slot]), parity ^ 1);
      cuda::barrier_arrive_expect(arrived, kChunk);
      cuda::bulk_copy(cuda::shared_address(at), from, kChunk, arrived);
    } else if (thread < kReaders) {
      cuda::barrier_wait(arrived, parity);
#pragma unroll
      for (int k = 0; k < kChunk / 16 / kReaders; ++k) {
        const uint4 value = reinterpret_cast<const uint4*>(at)[k * kReaders + thread];
        sum ^= value.x ^ value.y ^ value.z ^ value.w;
      }
      cuda::barrier_arrive(cuda::shared_address(&empty[slot]));
    }
    if (++slot == kRing) {
      slot = 0;
      parity ^= 1;
    }
  }
  if (sum == 0x12345678u) *sink = sum;
}

int multiprocessors() {
  int count = 0;
  must(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "multiprocessors");
  return count;
}

void launch_stream(const void* w13, const void* w2, int64_t w13_bytes, int64_t w2_bytes,
                   const int32_t* hit, const int32_t* num_hit, uint32_t* sink, cudaStream_t on) {
  static const int blocks = multiprocessors();
  must(cudaFuncSetAttribute(stream, cudaFuncAttributeMaxDynamicSharedMemorySize, kRing * kChunk),
       "stream");
  stream<<<blocks, kReaders + 32, kRing * kChunk, on>>>(static_cast<const char*>(w13),
                                                        static_cast<const char*>(w2), w13_bytes,
                                                        w2_bytes, hit, num_hit, sink);
}

// ---- timing

// Microseconds of one of the `calls` calls that `work` makes, by replays of a graph.
template <class Work>
double time_us(int calls, const Work& work) {
  cudaStream_t on = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking), "stream");
  must(cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < calls; ++i) work(i, on);
  must(cudaStreamEndCapture(on, &graph), "capture");
  must(cudaGraphInstantiate(&ready, graph, 0), "graph");
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<double> times;
  double spent_us = 0;
  while (times.size() < 5 || (times.size() < 41 && spent_us < 60e3)) {
    must(cudaEventRecord(begin, on), "event");
    must(cudaGraphLaunch(ready, on), "graph");
    must(cudaEventRecord(end, on), "event");
    must(cudaEventSynchronize(end), "graph");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    if (spent_us > 0) times.push_back(double{ms} * 1000 / calls);  // the first one warms up
    spent_us += double{ms} * 1000;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(on);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// ---- what is measured

struct LayerShape {
  const char* name;
  int experts, top_k;
  int64_t width, ffn_width;
};
constexpr LayerShape kShapes[] = {
    {"Mixtral-8x7B", 8, 2, 4096, 14336},
    {"Qwen3-30B-A3B", 128, 8, 2048, 768},
    {"OLMoE-1B-7B", 64, 8, 2048, 1024},
    {"DSV3-EP8", 32, 8, 7168, 2048},
};
struct Load {
  int64_t tokens;
  Popularity popularity = {};
  const char* label = "";
};
// Spreads: a prompt of 512 tokens through random weights goes from none in the first layer to 2.5 in the last of 48.
constexpr Load kLoads[] = {{1},
                           {2},
                           {4},
                           {8},
                           {16},
                           {64},
                           {256},
                           {1024},
                           {4096},
                           {16384},
                           {256, {.zipf = 1}, "zipf"},
                           {512, {.spread = 0.5f}, "sprd.5"},
                           {512, {.spread = 1}, "sprd1"},
                           {512, {.spread = 2}, "sprd2"},
                           {4096, {.spread = 1}, "sprd1"}};

struct Options {
  std::string jsonl, shape, entry;
  int64_t tokens = 0;
  double peak_tflops = 802;  // a dense bf16 product of 8192^3 on an H200
  bool quick = false;
};

MoeFfn::Problem problem_of(const LayerShape& shape, int64_t max_tokens) {
  MoeFfn::Problem problem;
  problem.rule.experts = shape.experts;
  problem.rule.top_k = shape.top_k;
  problem.rule.weigh = RouteRule::Weigh::renormalize;
  problem.width = shape.width;
  problem.ffn_width = shape.ffn_width;
  problem.max_tokens = max_tokens;
  return problem;
}

// Two copies of a layer's packed weights.
struct Weights {
  explicit Weights(const LayerShape& shape)
      : w13_bytes(MoePack::w13_bytes(shape.width, shape.ffn_width)),
        w2_bytes(MoePack::w2_bytes(shape.width, shape.ffn_width)),
        memory(2 * shape.experts * (w13_bytes + w2_bytes),
               MoePack::gains_from_sides(shape.width, shape.ffn_width)) {
    const int64_t bytes = shape.experts * (w13_bytes + w2_bytes);
    for (int copy = 0; copy < 2; ++copy) {
      w13[copy] = reinterpret_cast<__nv_bfloat16*>(memory.data() + copy * bytes);
      w2[copy] = w13[copy] + shape.experts * w13_bytes / 2;
      fill_normals<<<4096, 256>>>(w13[copy], shape.experts * w13_bytes / 2,
                                  1 / std::sqrt(static_cast<float>(shape.width)), 11 + copy);
      fill_normals<<<4096, 256>>>(w2[copy], shape.experts * w2_bytes / 2,
                                  1 / std::sqrt(static_cast<float>(shape.ffn_width)), 23 + copy);
    }
  }
  int64_t w13_bytes, w2_bytes;
  switchyard::bench::WeightMemory memory;  // random in any order, so its blocks need no exchange
  __nv_bfloat16 *w13[2], *w2[2];
};

// One of the inputs that a graph goes round.
struct Input {
  Input(const MoeFfn::Problem& problem, const Load& load, uint32_t seed, Memory& memory)
      : y(memory.take<float>(load.tokens * problem.width)) {
    const int64_t tokens = load.tokens, picks = tokens * problem.rule.top_k;
    const int experts = problem.rule.experts;
    auto* x = memory.take<__nv_bfloat16>(tokens * problem.width);
    auto* logits = memory.take<float>(tokens * experts);
    fill_normals<<<1024, 256>>>(x, tokens * problem.width, 1, seed);
    fill_logits<<<static_cast<unsigned>((tokens * experts + 255) / 256), 256>>>(
        logits, tokens * experts, experts, load.popularity, seed + 7);
    args.x = x;
    args.logits = logits;
    args.tokens = tokens;
    args.y = y;
    args.routing = {memory.take<int32_t>(picks),       memory.take<float>(picks),
                    memory.take<int32_t>(picks),       memory.take<int32_t>(picks),
                    memory.take<int32_t>(experts + 1), memory.take<int32_t>(experts),
                    memory.take<int32_t>(1),           memory.take<int32_t>(1)};
    must(cudaMemset(args.routing.unusable, 0, 4), "memset");
  }
  MoeFfn::Args args;
  float* y;
};

struct Row {
  double hits = 0, memory_us = 0, flop_us = 0, stream_us = 0, route_us = 0;
  double floor_us() const { return std::max(memory_us, flop_us); }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    int major = 0, minor = 0;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "device");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "device");
    sm_ = major * 10 + minor;
    if (!options.jsonl.empty()) file_ = std::fopen(options.jsonl.c_str(), "w");
    cudaDeviceProp properties{};
    must(cudaGetDeviceProperties(&properties, 0), "device");
    device_ = properties.name;
    read_tbs_ = read_bandwidth();
    std::printf("%s, %d multiprocessors; read bandwidth %.3f TB/s; peak %.0f TFLOP/s\n",
                device_.c_str(), properties.multiProcessorCount, read_tbs_, options.peak_tflops);
  }
  ~Bench() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run_shape(const LayerShape& shape) {
    const Weights weights(shape);
    for (const Load& load : kLoads) {
      if (options_.tokens != 0 && options_.tokens != load.tokens) continue;
      if (options_.quick && load.tokens > 1024) continue;
      run_load(shape, weights, load);
    }
  }
  bool failed() const { return failed_; }

 private:
  static double read_bandwidth() {
    Memory memory;
    const int64_t bytes = int64_t{1} << 32;
    auto* data = memory.take<char>(bytes);
    auto* list = memory.take<int32_t>(2);
    auto* sink = memory.take<uint32_t>(1);
    const int32_t values[2] = {0, 1};
    must(cudaMemcpy(list, values, 8, cudaMemcpyHostToDevice), "list");
    must(cudaMemset(data, 1, bytes), "memset");
    const double us = time_us(2, [&](int, cudaStream_t on) {
      launch_stream(data, data, bytes / 2, bytes / 2, list, list + 1, sink, on);
    });
    return static_cast<double>(bytes) / us / 1e6;
  }

  void run_load(const LayerShape& shape, const Weights& weights, const Load& load) {
    Memory memory;
    const MoeFfn::Problem problem = problem_of(shape, load.tokens);
    const int num_inputs = load.tokens <= 256 ? 8 : load.tokens <= 1024 ? 4 : 2;
    std::vector<Input> inputs;
    auto* workspace = memory.take<char>(switchyard::moe_layer_workspace(problem, sm_));
    auto* sync = memory.take<uint32_t>(MoeFfn::kSyncWords);
    must(cudaMemset(sync, 0, MoeFfn::kSyncWords * 4), "memset");
    for (int i = 0; i < num_inputs; ++i) {
      inputs.emplace_back(problem, load, 1000 + 10 * i, memory);
      inputs.back().args.w13 = weights.w13[i % 2];
      inputs.back().args.w2 = weights.w2[i % 2];
      inputs.back().args.sides = weights.memory.sides();
      inputs.back().args.workspace = workspace;
      inputs.back().args.sync = sync;
    }
    const Row row = measure_floor(problem, weights, inputs, memory);
    std::printf("%-14s %6lld %-5s hits %6.1f  floor %8.1f  stream %8.1f  route %5.1f |", shape.name,
                static_cast<long long>(load.tokens), load.label, row.hits, row.floor_us(),
                row.stream_us, row.route_us);
    const std::vector<float> expected =
        result_of(switchyard::moe_ffn_kernels().back(), problem, inputs[0]);
    for (const MoeFfn::Kernel& entry : switchyard::moe_ffn_kernels()) {
      if (sm_ < entry.sm_min || sm_ > entry.sm_max || entry.refusal(problem) != nullptr) continue;
      if (!entry.suits(problem, load.tokens)) continue;
      if (entry.name.find(options_.entry) == std::string_view::npos) continue;
      run_entry(entry, shape, problem, load, row, inputs, expected);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  Row measure_floor(const MoeFfn::Problem& problem, const Weights& weights,
                    std::vector<Input>& inputs, Memory& memory) {
    Row row;
    auto* sink = memory.take<uint32_t>(1);
    const auto calls = static_cast<int>(inputs.size());
    const MoeRoute::Problem routed = {problem.rule, problem.max_tokens};
    row.route_us = time_us(calls, [&](int i, cudaStream_t on) {
      const MoeFfn::Args& args = inputs[i].args;
      MoeRoute::run(routed,
                    {.logits = args.logits,
                     .tokens = args.tokens,
                     .routing = args.routing,
                     .workspace = args.workspace},
                    on);
    });
    for (const Input& input : inputs) {
      int32_t hits = 0;
      must(cudaMemcpy(&hits, input.args.routing.num_hit, 4, cudaMemcpyDeviceToHost), "hits");
      row.hits += static_cast<double>(hits) / calls;
    }
    const auto rows = static_cast<double>(inputs[0].args.tokens);
    const auto width = static_cast<double>(problem.width);
    const double bytes = row.hits * static_cast<double>(weights.w13_bytes + weights.w2_bytes) +
                         rows * (width * 10 + problem.rule.experts * 4);
    const double flop =
        rows * problem.rule.top_k * 6 * width * static_cast<double>(problem.ffn_width);
    row.memory_us = bytes / read_tbs_ / 1e6;
    row.flop_us = flop / options_.peak_tflops / 1e6;
    row.stream_us = time_us(calls, [&](int i, cudaStream_t on) {
      const MoeFfn::Args& args = inputs[i].args;
      launch_stream(args.w13, args.w2, weights.w13_bytes, weights.w2_bytes, args.routing.hit,
                    args.routing.num_hit, sink, on);
    });
    return row;
  }

  std::vector<float> result_of(const MoeFfn::Kernel& entry, const MoeFfn::Problem& problem,
                               const Input& input) const {
    std::vector<float> y(input.args.tokens * problem.width);
    must(cudaMemset(input.y, 0, y.size() * 4), "memset");
    switchyard::run_moe_layer(entry, problem, input.args, nullptr);
    must(cudaMemcpy(y.data(), input.y, y.size() * 4, cudaMemcpyDeviceToHost), "y");
    return y;
  }

  void run_entry(const MoeFfn::Kernel& entry, const LayerShape& shape,
                 const MoeFfn::Problem& problem, const Load& load, const Row& row,
                 const std::vector<Input>& inputs, const std::vector<float>& expected) {
    const std::vector<float> y = result_of(entry, problem, inputs[0]);
    double wrong = 0, all = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double difference = double{y[i]} - double{expected[i]};
      wrong += difference * difference;
      all += double{expected[i]} * double{expected[i]};
    }
    const double error = std::sqrt(wrong / all);
    const bool right = error < 6e-3;  // a NaN is not
    failed_ = failed_ || !right;
    const double us = time_us(static_cast<int>(inputs.size()), [&](int i, cudaStream_t on) {
      switchyard::run_moe_layer(entry, problem, inputs[i].args, on);
    });
    const std::string_view name = entry.name.substr(entry.name.rfind('.') + 1);
    std::printf("  %.*s %.1f (%.2f)%s", static_cast<int>(name.size()), name.data(), us,
                us / row.floor_us(), right ? "" : " WRONG");
    if (file_ == nullptr) return;
    std::fprintf(file_,
                 "{\"bench\":\"gpu_moe\",\"device\":\"%s\",\"shape\":\"%s\",\"tokens\":%lld,"
                 "\"zipf\":%g,\"spread\":%g,\"entry\":\"%.*s\",\"us\":%.2f,\"floor_us\":%.2f,"
                 "\"memory_us\":%.2f,"
                 "\"flop_us\":%.2f,\"stream_us\":%.2f,\"route_us\":%.2f,\"hits\":%.2f,"
                 "\"read_tbs\":%.3f,\"placed\":%s,\"error\":%.2e}\n",
                 device_.c_str(), shape.name, static_cast<long long>(load.tokens),
                 double{load.popularity.zipf}, double{load.popularity.spread},
                 static_cast<int>(entry.name.size()), entry.name.data(), us, row.floor_us(),
                 row.memory_us, row.flop_us, row.stream_us, row.route_us, row.hits, read_tbs_,
                 inputs[0].args.sides.mask != 0 ? "true" : "false", error);
  }

  Options options_;
  int sm_ = 0;
  std::string device_;
  double read_tbs_ = 0;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      options.quick = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (name == "--jsonl") {
      options.jsonl = value;
    } else if (name == "--shape") {
      options.shape = value;
    } else if (name == "--entry") {
      options.entry = value;
    } else if (name == "--tokens") {
      options.tokens = std::atoll(value);
    } else if (name == "--peak-tflops") {
      options.peak_tflops = std::atof(value);
    } else {
      std::fprintf(stderr, "bench_gpu_moe: unknown option %s; see the top of bench/gpu_moe.cu\n",
                   name.c_str());
      std::exit(2);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  int count = 0;
  must(cudaGetDeviceCount(&count), "devices");
  Bench bench(options);
  for (const LayerShape& shape : kShapes) {
    if (options.shape.empty() || options.shape == shape.name) bench.run_shape(shape);
  }
  return bench.failed() ? 1 : 0;
}
