// SPDX-License-Identifier: Apache-2.0
// LoopOptions: what the loop is told of its model and its limits.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "switchyard/options.h"

#include "engine/recorder.h"
#include "schedule/limits.h"
#include "schedule/queue_limits.h"

namespace switchyard::engine {

struct LoopOptions {
  schedule::Limits limits;
  schedule::QueueLimits queue;
  bool prefix_cache = true;
  int max_model_len = 0;      ///< of prompt and output together; the cache holds one such sequence
  int vocab = 0;              ///< V
  std::vector<int> experts;   ///< [MoE layers] E
  float capacity_factor = 0;  ///< of the model's routers; 0: dropless
  std::vector<int32_t> eos_ids;  ///< end of sequence
  MetricDetail metric_detail = MetricDetail::layer;
  RoutingSink routing_sink;  ///< gets every step's routing; empty: nobody does
  RoutingDetail routing_detail = RoutingDetail::counts;
  std::function<bool()> wants_routing;  ///< asked before each step; empty: always
};

}  // namespace switchyard::engine
