// SPDX-License-Identifier: Apache-2.0
// What `switchyard stats` says about a dump of a server's recorder: the load of each layer over the whole time, and how far
// it moved between windows. The measures are those of docs/metrics.md, "Of the load of a trace".
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal.h"
#include "moe/trace/expert_load.h"

namespace switchyard::cli {

struct LoadReport {
  struct Layer {
    double floor = 0;    ///< imbalance of the load
    double entropy = 0;  ///< of its shares
    int hottest = 0, idle = 0;
    double hottest_share = 0, dropped_share = 0;
    double drift = 0;  ///< distance of neighbouring windows, mean
  };
  std::string path;
  moe::ExpertLoad load;
  std::vector<Layer> layers;
};

LoadReport make_load_report(std::string path, moe::ExpertLoad load);
std::string load_report_text(const LoadReport& report, const Look& look);
void write_load_report(JsonWriter& json, const LoadReport& report);

}  // namespace switchyard::cli
