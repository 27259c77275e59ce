// SPDX-License-Identifier: Apache-2.0
// The memory plan: what weights, steps and the KV cache will take, settled and refused before any
// weight is read.
#pragma once
#include <cstdint>

#include "switchyard/options.h"

#include "base/result.h"
#include "device/device.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace switchyard::engine {

/// The facts that a plan is made from.
struct MemoryNeeds {
  int64_t weight_bytes = 0;    ///< of all parameters, in the precision of the run
  int64_t step_bytes = 0;      ///< temporaries of the largest step (an estimate)
  int64_t kv_block_bytes = 0;  ///< one block over all layers
  int max_positions = 0;       ///< what the model was made for
};

struct MemoryPlan {
  int64_t weight_bytes = 0, step_bytes = 0, kv_cache_bytes = 0, available_bytes = 0;
  int num_blocks = 0;
  int max_model_len = 0;  ///< positions of the longest sequence; the cache holds at least one such
};

MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options,
                         int64_t kv_block_bytes);

/// The same on a device, with what its attention takes; sets options.block_tokens when it is 0.
MemoryNeeds memory_needs_on(DeviceId device, const model::ModelConfig& config,
                            EngineOptions& options);

/// Errors: Code::out_of_memory with every sum and what to change; Code::bad_request for options
/// that contradict the model or each other.
Result<MemoryPlan> plan_memory(const MemoryNeeds& needs, const EngineOptions& options,
                               int64_t available_bytes);

constexpr DType precision_dtype(Precision precision) noexcept {
  return precision == Precision::f32 ? DType::f32 : DType::bf16;
}

}  // namespace switchyard::engine
