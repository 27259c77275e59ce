// SPDX-License-Identifier: Apache-2.0
// Routing by moe/route on the host, for routers that the device kernels do not do, and for capacities: the logits of a layer
// go to the host, its picks come back.
//
//   cost  the stream stops once a layer: two copies of E + 2 K words a token, the selector's time, and some 20 us of waiting;
//         and steps cannot be replayed as graphs
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "device/cuda.h"
#include "device/device.h"
#include "kernels/ops/route.h"
#include "moe/route/selector.h"

namespace switchyard::model::cuda {

/// What became of a layer's picks, for the observer.
struct HostLoads {
  std::vector<int32_t> load, demand;  ///< [E]
  RouteCounts counts;
};

/// Room that the layers of a step share: they run one after the other.
class HostRouting {
 public:
  /// Grows the room to what this router needs.
  Status reserve(const RouterSpec& spec, const moe::Selector& selector, int64_t max_tokens);

  struct Call {
    const float* logits = nullptr;  ///< [T, E] on the device
    const float* bias = nullptr;    ///< [E] on the device, with RouterSpec::selection_bias
    int64_t tokens = 0;
    int layer = 0;
    int32_t* expert = nullptr;  ///< [T, K] on the device; -1: dropped, or none
    float* weight = nullptr;    ///< [T, K]
  };
  /// Waits for the logits; the copies of the picks are queued. Errors: Code::device.
  Status route(const RouterSpec& spec, const moe::Selector& selector, const Call& call,
               HostLoads& loads, CudaStream& device, const Stream& host);

 private:
  PinnedMemory logits_, bias_, expert_, weight_;
  Arena arena_;
};

}  // namespace switchyard::model::cuda
