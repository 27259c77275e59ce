// SPDX-License-Identifier: Apache-2.0
// What a warm decode step asks of the runtime and of the host's heap, counted: the linker sends these calls through the functions
// below (tests/model/CMakeLists.txt).
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "device/cuda.h"
#include "model/devices.h"

namespace {

std::atomic<int> allocations{0}, waits{0}, launches{0}, copies{0}, host_allocations{0};
thread_local bool counts_host = false;

}  // namespace

extern "C" {
#define SWITCHYARD_COUNT(counter, name, parameters, arguments) \
  cudaError_t __real_##name parameters;                        \
  cudaError_t __wrap_##name parameters {                       \
    ++(counter);                                               \
    return __real_##name arguments;                            \
  }
SWITCHYARD_COUNT(allocations, cudaMalloc, (void** at, size_t bytes), (at, bytes))
SWITCHYARD_COUNT(allocations, cudaHostAlloc, (void** at, size_t bytes, unsigned flags),
                 (at, bytes, flags))
SWITCHYARD_COUNT(waits, cudaStreamSynchronize, (cudaStream_t stream), (stream))
SWITCHYARD_COUNT(launches, cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t stream),
                 (graph, stream))
SWITCHYARD_COUNT(copies, cudaMemcpyAsync,
                 (void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                  cudaStream_t stream),
                 (to, from, bytes, kind, stream))
}

void* operator new(std::size_t size) {
  if (counts_host) ++host_allocations;
  if (void* at = std::malloc(size > 0 ? size : 1)) return at;
  std::abort();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace switchyard::test {
namespace {

constexpr DeviceId kDevice{DeviceId::Kind::cuda, 0};
constexpr const char* kDemo = SWITCHYARD_SOURCE_DIR "/models/demo";
constexpr int kSequences = 5, kBlock = 16, kMaxBlocks = 4;

// Decode steps of kSequences sequences, the same arrays each time with the next position.
struct Steps {
  std::vector<int32_t> token, position, offset, context, table, row;
  std::vector<model::SampleSpec> sample;

  Steps() {
    for (int b = 0; b < kSequences; ++b) {
      token.push_back(100 + b);
      position.push_back(0);
      offset.push_back(b);
      context.push_back(0);
      row.push_back(b);
      for (int i = 0; i < kMaxBlocks; ++i) table.push_back(b * kMaxBlocks + i);
      sample.push_back({.seen = {}});
    }
    offset.push_back(kSequences);
  }
  model::StepInput input(bool picks) {
    position = context;
    const auto all = [](std::vector<int32_t>& v) {
      return TensorView::of(v.data(), {std::ssize(v)});
    };
    model::StepInput input{.token = all(token),
                           .position = all(position),
                           .seq_offset = all(offset),
                           .context_len = all(context),
                           .block_table = TensorView::of(table.data(), {kSequences, kMaxBlocks}),
                           .logit_row = all(row),
                           .decode_only = true};
    if (picks) input.sample = sample;
    return input;
  }
  void advance() {
    for (int32_t& c : context) ++c;
  }
};

class Watcher final : public model::RoutingObserver {
 public:
  void on_routing(int, const Routing&) override { ++layers; }
  int layers = 0;
};

TEST(CudaWarmStep, AllocatesNothingAndWaitsOnce) {
  if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool picks : {true, false}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", picks " << picks);
      Pool pool(PoolOptions{.num_threads = 1, .pin = false});
      const model::LoadOptions options{.dtype = dtype,
                                       .max_step_tokens = 64,
                                       .max_sequences = kSequences,
                                       .block_tokens = kBlock,
                                       .num_kv_blocks = kSequences * kMaxBlocks,
                                       .max_blocks_per_sequence = kMaxBlocks,
                                       .on_progress = {}};
      const auto config = model::Model::read_config(kDemo);
      auto model = model::Model::load(kDemo, *config, options, Stream(kDevice, pool));
      ASSERT_TRUE(model.ok()) << model.error().message;
      Steps steps;
      Watcher watcher;
      const auto step = [&] {
        const model::StepInput input = steps.input(picks);
        counts_host = true;
        const auto output = (*model)->forward(input, &watcher);
        counts_host = false;
        ASSERT_TRUE(output.ok()) << output.error().message;
        EXPECT_EQ(output->pick.empty(), !picks);
        EXPECT_EQ(output->logits.empty(), picks);
        steps.advance();
      };
      for (int i = 0; i < 3; ++i) step();  // captures the graph
      EXPECT_GT(allocations, 0) << "the calls are not counted";
      allocations = waits = launches = copies = host_allocations = 0;
      constexpr int kSteps = 10;
      for (int i = 0; i < kSteps; ++i) step();
      EXPECT_EQ(allocations, 0);
      EXPECT_EQ(host_allocations, 0);
      EXPECT_EQ(waits, kSteps);
      EXPECT_EQ(launches, kSteps);
      EXPECT_LE(copies, 3 * kSteps) << "rows in; picks, or logits and routing, out";
      EXPECT_GT(watcher.layers, 0);
    }
  }
}

}  // namespace
}  // namespace switchyard::test
