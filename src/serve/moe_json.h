// SPDX-License-Identifier: Apache-2.0
// The JSON of /v1/moe/stats: what the experts did since the start.
#pragma once
#include <string>

#include "switchyard/engine.h"

namespace switchyard::serve {

/// Per MoE layer: picks of each expert before any drop, imbalance and experts touched as means over the layer's steps,
/// drops; seconds by phase when the engine sums them. docs/metrics.md defines each. `start_time_s`, seconds since 1970,
/// tells a reader of two answers whether one server gave both.
std::string moe_json(const ModelSummary& summary, const EngineStats& stats, double start_time_s);

/// Which rank holds which expert, [MoE layer][rank][slot] as `switchyard plan --json` says it. This engine is one rank
/// that holds every expert once.
std::string placement_json(const ModelSummary& summary, const EngineStats& stats);

}  // namespace switchyard::serve
