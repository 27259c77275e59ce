// SPDX-License-Identifier: Apache-2.0
// The picks of single experts as Prometheus text. Not in the registry: a large model has 15,616 of them, so they are
// written from the sums that are there anyway, and only when they are asked for.
#pragma once
#include <string>

#include "switchyard/options.h"

#include "engine/statistics.h"

namespace switchyard::engine {

/// switchyard_expert_assignments_total by layer and expert: of every expert, or of the `top` that have most in each layer
/// so far; "" for the other details.
std::string expert_metrics_text(const Statistics& statistics, MetricDetail detail, int top);

}  // namespace switchyard::engine
