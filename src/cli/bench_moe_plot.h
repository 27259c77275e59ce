// SPDX-License-Identifier: Apache-2.0
// Rows of bench moe as a figure: for each shape and routing, tokens per second against tokens, and
// what a floor of the machine would allow.
#pragma once
#include <string>
#include <vector>

#include "cli/bench_moe_row.h"

namespace switchyard::cli {

/// An SVG. At least one row.
std::string moe_figure(const std::vector<MoeRow>& rows);

}  // namespace switchyard::cli
