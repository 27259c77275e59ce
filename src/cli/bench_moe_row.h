// SPDX-License-Identifier: Apache-2.0
// One measured row of bench moe, and how rows are shown.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::cli {

struct MoeRow {
  std::string shape;
  int tokens = 0;
  std::string routing, dtype, kernel;  ///< kernel: grouped, naive or padded
  double time_us = 0;                  ///< of one layer, median over the runs
  double floor_us = 0;
  double experts_touched = 0;  ///< of the experts that live here; means over the draws
  double imbalance = 0;        ///< hottest over mean, before any drop
  double drop_rate = 0;        ///< dropped picks of all picks
  double gbps = 0;             ///< bytes of the touched experts' weights over the time
  double gflops = 0;           ///< operations of the kept picks over the time
  double capacity = 0;         ///< factor; 0 is dropless
  double time_spread = 0;      ///< (upper - lower quartile) / median
  double best_us = 0;
  double rows = 0;  ///< computed by the experts: kept picks, and padding
  int runs = 0, layers = 0, threads = 0;
  std::string gemm;                                       ///< the kernel of each product
  std::vector<std::pair<std::string, double>> phases_us;  ///< empty unless asked for
};

/// md, csv, json or jsonl.
std::string moe_rows_text(const std::vector<MoeRow>& rows, const std::string& format);

}  // namespace switchyard::cli
