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
constexpr int kPause = 32;  // steps in turn after one for nothing; whole blocks

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
  /// With the tokens that were picked.
  void follow(const TensorView& pick) {
    token.assign(pick.as<int32_t>(), pick.as<int32_t>() + kSequences);
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
  explicit Watcher(bool wants_picks) : wants_picks_(wants_picks) {}
  void on_routing(int, const Routing&) override { ++layers; }
  bool wants_picks() const override { return wants_picks_; }
  int layers = 0;

 private:
  bool wants_picks_;
};

Result<std::unique_ptr<model::Model>> load_demo(DType dtype, Pool& pool) {
  const model::LoadOptions options{.dtype = dtype,
                                   .max_step_tokens = 64,
                                   .max_sequences = kSequences,
                                   .block_tokens = kBlock,
                                   .num_kv_blocks = kSequences * kMaxBlocks,
                                   .max_blocks_per_sequence = kMaxBlocks,
                                   .on_progress = {}};
  SWITCHYARD_ASSIGN(const auto config, model::Model::read_config(kDemo));
  return model::Model::load(kDemo, config, options, Stream(kDevice, pool));
}

TEST(CudaWarmStep, AllocatesNothingAndWaitsOnlyForCopies) {
  if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int kind : {0, 1, 2, 3}) {
      const bool picks = kind / 2 == 0, shows_experts = kind % 2 == 0;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", picks " << picks
                                      << ", the experts' too " << shows_experts);
      Pool pool(PoolOptions{.num_threads = 1, .pin = false});
      auto model = load_demo(dtype, pool);
      ASSERT_TRUE(model.ok()) << model.error().message;
      Steps steps;
      Watcher watcher(shows_experts);
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
      const bool copied = !picks || shows_experts;
      EXPECT_EQ(waits, copied ? kSteps : 0) << "else a word in memory is waited for";
      EXPECT_EQ(launches, kSteps);
      EXPECT_EQ(copies, (picks ? 0 : kSteps) + (shows_experts ? kSteps : 0)) << "only out";
      EXPECT_GT(watcher.layers, 0);
    }
  }
}

// A step that was foreseen is there when it is asked for: nothing is launched for it then. One that was not is launched.
TEST(CudaWarmStep, AStepAheadIsLaunchedOnce) {
  if (const auto bytes = cuda_free_bytes(0); !bytes.ok()) GTEST_SKIP() << bytes.error().message;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    Pool pool(PoolOptions{.num_threads = 1, .pin = false});
    auto model = load_demo(dtype, pool);
    ASSERT_TRUE(model.ok()) << model.error().message;
    Steps steps;
    Watcher watcher(false);
    std::atomic<bool> news{false};
    const auto launched_by = [&](bool goes_on, bool follows) {
      model::StepInput input = steps.input(true);
      if (goes_on) input.goes_on_unless = &news;
      launches = allocations = waits = copies = host_allocations = 0;
      counts_host = true;
      const auto output = (*model)->forward(input, &watcher);
      counts_host = false;
      EXPECT_TRUE(output.ok()) << output.error().message;
      if (output.ok() && follows) steps.follow(output->pick);
      steps.advance();
      return launches.load();
    };
    launched_by(false, true);  // captures
    EXPECT_EQ(launched_by(false, true), 1);
    EXPECT_EQ(launched_by(true, true), 2) << "its own, and the next one";
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(launched_by(true, true), 1) << "the next one";
      EXPECT_EQ(allocations + host_allocations + waits + copies, 0);
    }
    EXPECT_EQ(launched_by(false, true), 0) << "was there already";
    EXPECT_EQ(launched_by(true, false), 2);
    ++steps.token[0];  // not what was picked
    for (int i = 0; i < kPause; ++i) {
      EXPECT_EQ(launched_by(true, true), 1) << "what was foreseen was for nothing: " << i;
    }
    EXPECT_EQ(launched_by(true, true), 2) << "a pause has passed";
    news = true;
    EXPECT_EQ(launched_by(true, true), 0) << "something has come up";
    news = false;
    EXPECT_EQ(launched_by(true, true), 2);
    EXPECT_EQ(steps.context[0], 15 + kPause);
    EXPECT_EQ(launched_by(true, true), 0) << "was there; the next one needs another block";
    EXPECT_EQ(launched_by(true, true), 2);
  }
}

}  // namespace
}  // namespace switchyard::test
