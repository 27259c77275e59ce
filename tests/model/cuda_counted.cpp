// SPDX-License-Identifier: Apache-2.0
#include "cuda_counted.h"

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include <cuda_runtime_api.h>

namespace switchyard::test {

CudaCalls cuda_calls;

namespace {

constexpr DeviceId kDevice{DeviceId::Kind::cuda, 0};
constexpr const char* kDemo = SWITCHYARD_SOURCE_DIR "/models/demo";
thread_local bool counts_host = false;

/// Whether it is this launch's turn to go wrong.
Fault take_fault() {
  if (cuda_calls.launch == Fault::none || cuda_calls.launches_before-- > 0) return Fault::none;
  return cuda_calls.launch.exchange(Fault::none);
}

}  // namespace

CountHost::CountHost() { counts_host = true; }
CountHost::~CountHost() { counts_host = false; }

DecodeSteps::DecodeSteps() {
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

void DecodeSteps::follow(const TensorView& pick) {
  token.assign(pick.as<int32_t>(), pick.as<int32_t>() + kSequences);
}

model::StepInput DecodeSteps::input(bool picks) {
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

void DecodeSteps::advance() {
  for (int32_t& c : context) ++c;
}

Result<std::unique_ptr<model::Model>> load_demo(DType dtype, Pool& pool) {
  using D = DecodeSteps;
  const model::LoadOptions options{.dtype = dtype,
                                   .max_step_tokens = 64,
                                   .max_sequences = D::kSequences,
                                   .block_tokens = D::kBlock,
                                   .num_kv_blocks = D::kSequences * D::kMaxBlocks,
                                   .max_blocks_per_sequence = D::kMaxBlocks,
                                   .on_progress = {}};
  SWITCHYARD_ASSIGN(const auto config, model::Model::read_config(kDemo));
  return model::Model::load(kDemo, config, options, Stream(kDevice, pool));
}

}  // namespace switchyard::test

using switchyard::test::cuda_calls;
using switchyard::test::Fault;

extern "C" {
#define SWITCHYARD_COUNT(counter, name, parameters, arguments) \
  cudaError_t __real_##name parameters;                        \
  cudaError_t __wrap_##name parameters {                       \
    ++cuda_calls.counter;                                      \
    return __real_##name arguments;                            \
  }
SWITCHYARD_COUNT(allocations, cudaMalloc, (void** at, size_t bytes), (at, bytes))
SWITCHYARD_COUNT(allocations, cudaHostAlloc, (void** at, size_t bytes, unsigned flags),
                 (at, bytes, flags))
SWITCHYARD_COUNT(waits, cudaStreamSynchronize, (cudaStream_t stream), (stream))
SWITCHYARD_COUNT(copies, cudaMemcpyAsync,
                 (void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                  cudaStream_t stream),
                 (to, from, bytes, kind, stream))

cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++cuda_calls.launches;
  const Fault fault = switchyard::test::take_fault();
  if (fault == Fault::refused) return cudaErrorLaunchOutOfResources;
  if (fault == Fault::lost) return cudaSuccess;
  const cudaError_t error = __real_cudaGraphLaunch(graph, stream);
  if (const int us = cuda_calls.launch_us; us > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  return error;
}

cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        unsigned long long flags);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        unsigned long long flags) {
  if (cuda_calls.refuses_graphs) return cudaErrorMemoryAllocation;
  return __real_cudaGraphInstantiate(exec, graph, flags);
}
}

void* operator new(std::size_t size) {
  if (switchyard::test::counts_host) ++cuda_calls.host_allocations;
  if (void* at = std::malloc(size > 0 ? size : 1)) return at;
  std::abort();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
