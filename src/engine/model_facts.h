// SPDX-License-Identifier: Apache-2.0
// Facts of an opened model: the public summary, and the gauges that never change.
#pragma once
#include "switchyard/engine.h"

#include "base/metrics.h"
#include "engine/memory_plan.h"
#include "model/model.h"

namespace switchyard::engine {

/// Everything but chat_template and load_s, which the opener knows.
ModelSummary summarize(const model::Model& model, const MemoryPlan& plan,
                       const EngineOptions& options, int num_threads);

/// Sizes, configuration and load time as gauges, and readiness.
void register_facts(MetricRegistry& registry, const ModelSummary& summary,
                    const model::ModelConfig& config, const model::MemoryFacts& memory,
                    const EngineOptions& options);

}  // namespace switchyard::engine
