// SPDX-License-Identifier: Apache-2.0
// The figures of bench serve: vLLM's block, a GitHub table, JSON.
#pragma once
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "client/summary.h"

namespace switchyard::cli {

/// One point and what came of it.
struct ServeRow {
  std::string label, url;
  client::Workload workload;
  client::Point point;
  client::Slo slo;
  client::Summary summary;
};

/// The lines of vLLM's `bench serve`, which scripts read, with our counts of failures after them.
std::string serve_block(const ServeRow& row);
std::string serve_table(const std::vector<ServeRow>& rows);
std::string serve_json(const std::vector<ServeRow>& rows);
std::string serve_json_line(const ServeRow& row);

/// Says on standard error what failed, by kind. kFailure when a request failed, or none was answered or left as planned;
/// being turned away (429) is no failure.
ExitCode report_failures(const std::vector<ServeRow>& rows);

}  // namespace switchyard::cli
