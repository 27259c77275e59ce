// SPDX-License-Identifier: Apache-2.0
// Decode steps of the demonstration model on a CUDA device, and what they ask of the runtime and of the host's heap: the linker sends
// these calls through cuda_counted.cpp (CMakeLists.txt), which counts them and can let launches go wrong.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "model/devices.h"

namespace switchyard::test {

/// What becomes of a launch, or of the making of a graph.
enum class Fault { none, refused, lost };

/// Of the whole program.
struct CudaCalls {
  std::atomic<int> allocations{0}, waits{0}, launches{0}, copies{0}, host_allocations{0};
  std::atomic<Fault> launch{
      Fault::none};  ///< of the graph launch that has `launches_before` others before it
  std::atomic<int> launches_before{0};
  std::atomic<bool> refuses_graphs{false};  ///< none can be instantiated
  std::atomic<int> launch_us{0};            ///< that every launch of a graph takes the host

  void reset() { allocations = waits = launches = copies = host_allocations = 0; }
};
extern CudaCalls cuda_calls;

/// While one lives, the thread's allocations count.
class CountHost {
 public:
  CountHost();
  ~CountHost();
  CountHost(const CountHost&) = delete;
  CountHost& operator=(const CountHost&) = delete;
};

/// Decode steps of so many sequences, the same arrays each time with the next position.
struct DecodeSteps {
  static constexpr int kSequences = 5, kBlock = 16, kMaxBlocks = 4;
  std::vector<int32_t> token, position, offset, context, table, row;
  std::vector<model::SampleSpec> sample;

  DecodeSteps();
  /// With the tokens that were picked.
  void follow(const TensorView& pick);
  model::StepInput input(bool picks);
  void advance();
};

Result<std::unique_ptr<model::Model>> load_demo(DType dtype, Pool& pool);

}  // namespace switchyard::test
