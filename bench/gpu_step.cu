// SPDX-License-Identifier: Apache-2.0
// A CUDA step without the experts, kernel by kernel, beside its floor: dense products, paged attention, rows.
//
//   bench_gpu_step [--jsonl FILE] [--only TEXT] [--block POSITIONS]
//
// Times are medians of graph replays, in us for one launch; each graph goes round several copies of weights or caches, more
// than the L2 holds, so that they come from memory. The floor is bytes / read bandwidth, measured here, in this run; prefill
// and products of many tokens are told in TFLOP/s.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "gpu_memory.cuh"
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/moe_baseline.h"
#include "kernels/cuda/step.h"

namespace {

using namespace switchyard;
using namespace switchyard::cuda;

using bench::must;

class Memory : public bench::Memory {
 public:
  using bench::Memory::take;
  char* take(int64_t bytes) { return bench::Memory::take<char>(bytes); }
  char* take_random(int64_t count, DType dtype) {
    char* at = take(count * dtype_bytes(dtype));
    fill_random(at, dtype, count, 1.0f, num_blocks(), nullptr);
    return at;
  }
  template <class T>
  T* take_copy(const std::vector<T>& host) {
    T* at = bench::Memory::take<T>(std::ssize(host));
    must(cudaMemcpy(at, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
    return at;
  }
};

cudaStream_t stream() {
  static const cudaStream_t made = [] {
    cudaStream_t s = nullptr;
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    return s;
  }();
  return made;
}

// Microseconds of one launch: `launch(i)` queues the i-th of `rounds`.
double measure(int rounds, const std::function<void(int)>& launch) {
  launch(0);
  must(cudaDeviceSynchronize(), "first launch");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < rounds; ++i) launch(i);
  must(cudaStreamEndCapture(stream(), &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<double> us;
  for (int i = 0; i < 13; ++i) {
    must(cudaEventRecord(begin, stream()), "record");
    must(cudaGraphLaunch(exec, stream()), "replay");
    must(cudaEventRecord(end, stream()), "record");
    must(cudaEventSynchronize(end), "run");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 3) us.push_back(static_cast<double>(ms) * 1e3 / rounds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  return us[us.size() / 2];
}

double measure_read_bytes_per_us() {
  Memory memory;
  const int64_t bytes = int64_t{4} << 30;
  char* from = memory.take_random(bytes / 4, DType::f32);
  auto* sink = reinterpret_cast<uint32_t*>(memory.take(4));
  const double us = measure(1, [&](int) { read_memory(from, bytes, sink, stream()); });
  return static_cast<double>(bytes) / us;
}

struct Options {
  FILE* jsonl = nullptr;
  std::string only;
  int block = 64;  // positions of a block of the caches
};

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}
  bool wants(const std::string& name) const {
    return name.find(options_.only) != std::string::npos;
  }
  int block() const { return options_.block; }
  void set_bandwidth(double bytes_per_us) { bytes_per_us_ = bytes_per_us; }

  void add(const std::string& name, double us, double bytes, double flop) const {
    const double floor = bytes / bytes_per_us_, tflops = flop / us * 1e-6;
    std::printf("%-52s %9.2f us  floor %8.2f (%5.2f x)  %6.1f TFLOP/s\n", name.c_str(), us, floor,
                us / floor, tflops);
    if (options_.jsonl == nullptr) return;
    std::fprintf(options_.jsonl,
                 "{\"case\":\"%s\",\"us\":%.3f,\"floor_us\":%.3f,\"tflops\":%.2f,"
                 "\"read_tb_per_s\":%.3f}\n",
                 name.c_str(), us, floor, tflops, bytes_per_us_ * 1e-6);
  }

 private:
  Options options_;
  double bytes_per_us_ = 1;
};

struct Shape {
  const char* model;
  int64_t width;
  int heads, kv_heads, head_dim, experts;
  int64_t vocab;
};
constexpr Shape kShapes[] = {{"qwen3-30b-a3b", 2048, 32, 4, 128, 128, 151936},
                             {"olmoe-1b-7b", 2048, 16, 16, 128, 64, 50304},
                             {"mixtral-8x7b", 4096, 32, 8, 128, 8, 32000}};

void bench_dense(const Report& report, const std::string& name, int64_t n, int64_t k,
                 DenseLibrary* library) {
  if (!report.wants(name)) return;
  Memory memory;
  const int64_t bytes = n * k * 2;
  const int copies = static_cast<int>(std::max<int64_t>(2, (int64_t{200} << 20) / bytes + 1));
  std::vector<char*> weight;
  for (int i = 0; i < copies; ++i) weight.push_back(memory.take_random(n * k, DType::bf16));
  char* x = memory.take_random(1024 * k, DType::bf16);
  auto* y = reinterpret_cast<float*>(memory.take(1024 * n * 4));
  for (const int64_t tokens : {1, 8, 16, 32, 64, 512}) {
    if (n > 60000 && tokens > 64) continue;
    const auto args = [&](int i) {
      return Dense{.x = x, .weight = weight[i % copies], .tokens = tokens, .n = n, .k = k, .y = y};
    };
    const double moved = static_cast<double>(bytes + tokens * (2 * k + 4 * n));
    const double flop = 2.0 * static_cast<double>(tokens * n * k);
    const std::string row = name + " T=" + std::to_string(tokens);
    if (dense_skinny_accepts(args(0))) {
      report.add(row + " skinny", measure(copies, [&](int i) { dense_skinny(args(i), stream()); }),
                 moved, flop);
    }
    if (dense_few_accepts(args(0))) {
      report.add(row + " few", measure(copies, [&](int i) { dense_few(args(i), stream()); }), moved,
                 flop);
    }
    if (library != nullptr && library->run(args(0), stream())) {
      report.add(row + " cublaslt",
                 measure(copies, [&](int i) { library->run(args(i), stream()); }), moved, flop);
    }
  }
}

// Sequences that have `context` positions and add `tokens` each, over `copies` caches.
struct AttentionSetup {
  Memory memory;
  Attend args;
  std::vector<char*> k, v;
};
std::unique_ptr<AttentionSetup> set_up(const Shape& s, int sequences, int context, int tokens,
                                       int block, int copies) {
  auto setup = std::make_unique<AttentionSetup>();
  Memory& memory = setup->memory;
  const int per_sequence = (context + tokens + block - 1) / block;
  std::vector<int32_t> offset{0}, contexts, table;
  for (int b = 0; b < sequences; ++b) {
    offset.push_back(offset.back() + tokens);
    contexts.push_back(context);
    for (int i = 0; i < per_sequence; ++i) {  // scattered, as after some time of serving
      table.push_back(static_cast<int32_t>((int64_t{b} * per_sequence + i) * 7919 %
                                           (int64_t{sequences} * per_sequence)));
    }
  }
  const int64_t cache = int64_t{sequences} * per_sequence * block * s.kv_heads * s.head_dim;
  for (int i = 0; i < copies; ++i) {
    setup->k.push_back(memory.take_random(cache, DType::bf16));
    setup->v.push_back(memory.take_random(cache, DType::bf16));
  }
  const int64_t rows = int64_t{sequences} * tokens, values = rows * s.heads * s.head_dim;
  Attend& a = setup->args;
  a = {.heads = s.heads,
       .kv_heads = s.kv_heads,
       .head_dim = s.head_dim,
       .block_tokens = block,
       .scale = 0.0883883f,
       .q = memory.take_random(values, DType::bf16),
       .seq_offset = memory.take_copy(offset),
       .context_len = memory.take_copy(contexts),
       .block_table = memory.take_copy(table),
       .max_blocks = per_sequence,
       .sequences = sequences,
       .tokens = rows,
       .out = memory.take(values * 2)};
  const int64_t bytes = attend_workspace(a, int64_t{sequences} * per_sequence * block, sequences);
  a.workspace = memory.take(bytes);
  must(cudaMemset(a.workspace, 0, static_cast<size_t>(bytes)), "workspace");
  return setup;
}

// The choice of attend_decode and attend_prefill on sm_90, without their way out.
void must_accept(bool accepted) {
  if (accepted) return;
  std::fprintf(stderr,
               "bench_gpu_step: Hopper's attention refuses the caches: update the driver\n");
  std::exit(1);
}
void decode_on_hopper(const Attend& args, StreamHandle to) noexcept {
  must_accept(attend_decode_sm90a(args, to));
}
void prefill_on_hopper(const Attend& args, StreamHandle to) noexcept {
  must_accept(attend_prefill_sm90a(args, to));
}

void bench_attention(const Report& report, const Shape& s, int sequences, int context, int tokens) {
  const std::string name = std::string(tokens == 1 ? "decode " : "prefill ") + s.model +
                           " B=" + std::to_string(sequences) +
                           " context=" + std::to_string(context) +
                           (tokens == 1 ? "" : " T=" + std::to_string(tokens));
  if (!report.wants(name)) return;
  const double positions = static_cast<double>(sequences) * (context + tokens);
  const double bytes =
      positions * 2 * s.kv_heads * s.head_dim * 2 + 4.0 * sequences * tokens * s.heads * s.head_dim;
  const int copies = static_cast<int>(std::clamp(150e6 / bytes, 1.0, 32.0)) + 1;
  const auto setup = set_up(s, sequences, context, tokens, report.block(), copies);
  const auto timed = [&](void (*kernel)(const Attend&, StreamHandle) noexcept) {
    return measure(copies, [&](int i) {
      Attend args = setup->args;
      args.k_cache = setup->k[i];
      args.v_cache = setup->v[i];
      kernel(args, stream());
    });
  };
  const double seen = static_cast<double>(tokens) * (context + (tokens + 1) / 2.0);
  const double flop = 4.0 * sequences * seen * s.heads * s.head_dim;
  if (attend_is_sm90()) {
    report.add(name + " sm90a", timed(tokens == 1 ? decode_on_hopper : prefill_on_hopper), bytes,
               flop);
  }
  report.add(name + " sm80", timed(tokens == 1 ? attend_decode_sm80 : attend_prefill_sm80), bytes,
             flop);
}

void bench_rows(const Report& report, const Shape& s, int64_t tokens) {
  const std::string name = std::string("rows ") + s.model + " T=" + std::to_string(tokens);
  if (!report.wants(name)) return;
  Memory memory;
  const int64_t heads = s.heads + 2 * s.kv_heads;
  auto* x = reinterpret_cast<float*>(memory.take_random(tokens * s.width, DType::f32));
  auto* weight = reinterpret_cast<float*>(memory.take_random(s.width, DType::f32));
  auto* y32 = reinterpret_cast<float*>(memory.take(tokens * s.width * 4));
  char* y16 = memory.take(tokens * s.width * 2);
  auto* gate = reinterpret_cast<float*>(memory.take_random(s.experts * s.width, DType::f32));
  auto* logits = reinterpret_cast<float*>(memory.take(tokens * s.experts * 4));
  const NormRows norm{.x = x, .weight = weight, .tokens = tokens, .width = s.width, .y_bf16 = y16};
  const auto row = static_cast<double>(tokens * s.width);
  report.add(name + " norm", measure(20, [&](int) { norm_rows(norm, stream()); }), row * 6, 0);
  const NormRoute both{norm, gate, s.experts, logits};
  if (norm_route_accepts(both)) {
    report.add(name + " norm and gate", measure(20, [&](int) { norm_route(both, stream()); }),
               row * 6 + static_cast<double>(s.experts * s.width * 4), 0);
  }
  (void)y32;
  std::vector<int32_t> row_of(static_cast<size_t>(tokens));
  for (size_t i = 0; i < row_of.size(); ++i) row_of[i] = static_cast<int32_t>(i);
  auto* rows = memory.take_copy(row_of);
  auto* angle = reinterpret_cast<float*>(memory.take_random(tokens * s.head_dim, DType::f32));
  auto* qkv = reinterpret_cast<float*>(memory.take_random(tokens * heads * s.head_dim, DType::f32));
  const int64_t cache = (tokens + 16) * s.kv_heads * s.head_dim * 2;
  const PrepareHeads prepare{.heads = s.heads,
                             .kv_heads = s.kv_heads,
                             .head_dim = s.head_dim,
                             .rotary_dim = s.head_dim,
                             .norm = QkNormKind::per_head,
                             .qkv = qkv,
                             .q_norm = weight,
                             .k_norm = weight,
                             .cos = angle,
                             .sin = angle,
                             .rope_row = rows,
                             .slot = rows,
                             .q = memory.take(tokens * s.heads * s.head_dim * 2),
                             .k_cache = memory.take(cache),
                             .v_cache = memory.take(cache),
                             .tokens = tokens};
  report.add(name + " heads", measure(20, [&](int) { prepare_heads(prepare, stream()); }),
             static_cast<double>(tokens * heads * s.head_dim * 6), 0);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc || (name != "--jsonl" && name != "--only" && name != "--block")) {
      std::fprintf(stderr,
                   "bench_gpu_step: '%s' is no option, or has no value: expected [--jsonl FILE] "
                   "[--only TEXT] [--block POSITIONS]\n",
                   argv[i]);
      std::exit(1);
    }
    if (name == "--only") {
      options.only = argv[i + 1];
    } else if (name == "--block") {
      options.block = std::atoi(argv[i + 1]);
      if (options.block > 0 && options.block % 16 == 0) continue;
      std::fprintf(stderr,
                   "bench_gpu_step: --block is '%s': expected a multiple of 16, as the kernels "
                   "take\n",
                   argv[i + 1]);
      std::exit(1);
    } else if (options.jsonl = std::fopen(argv[i + 1], "w"); options.jsonl == nullptr) {
      std::fprintf(stderr, "bench_gpu_step: cannot write %s: %s\n", argv[i + 1],
                   std::strerror(errno));
      std::exit(1);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Report report(options);
  const double bandwidth = measure_read_bytes_per_us();
  report.set_bandwidth(bandwidth);
  std::printf("read bandwidth %.3f TB/s\n", bandwidth * 1e-6);
  std::string note;
  const auto library = DenseLibrary::open(note);
  if (library == nullptr) std::printf("%s\n", note.c_str());
  for (const Shape& s : kShapes) {
    const std::string name = std::string("dense ") + s.model;
    const int64_t q = int64_t{s.heads} * s.head_dim;
    bench_dense(report, name + " qkv", q + int64_t{2} * s.kv_heads * s.head_dim, s.width,
                library.get());
    bench_dense(report, name + " out", s.width, q, library.get());
    bench_dense(report, name + " head", s.vocab, s.width, library.get());
    for (const int sequences : {1, 8, 64}) {
      for (const int context : {64, 1024, 4096}) bench_attention(report, s, sequences, context, 1);
    }
    bench_attention(report, s, 256, 1024, 1);
    for (const int sequences : {8, 64, 256}) {
      for (const int context : {26, 120}) bench_attention(report, s, sequences, context, 1);
    }
    for (const int tokens : {512, 2048, 4096, 8192}) bench_attention(report, s, 1, 0, tokens);
    bench_attention(report, s, 1, 8192, 512);
    for (const int64_t tokens : {1, 8, 512}) bench_rows(report, s, tokens);
  }
  if (options.jsonl != nullptr) std::fclose(options.jsonl);
  return 0;
}
