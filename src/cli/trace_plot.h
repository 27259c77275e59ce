// SPDX-License-Identifier: Apache-2.0
// The figure of `switchyard stats --plot`: load by layer and expert, imbalance, batch sizes, topics,
// drift and co-activation, as one SVG.
#pragma once
#include <string>

#include "cli/trace_report.h"
#include "moe/trace/reader.h"

namespace switchyard::cli {

/// `layer` is that of the maps of one layer; -1: where topics differ most, or the load is the most
/// uneven.
std::string trace_figure(const moe::TraceView& trace, const TraceReport& report, int layer);

}  // namespace switchyard::cli
