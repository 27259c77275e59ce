// SPDX-License-Identifier: Apache-2.0
// Expert loads: what a server's recorder dumps (src/serve/routing_record.h describes the JSON), read and checked. Counts
// of windows of steps, where a trace (format.h) has every step.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "moe/trace/format.h"

namespace switchyard::moe {

struct ExpertLoadWindow {
  int64_t steps = 0, tokens = 0;
  std::vector<std::vector<uint64_t>> counts;  ///< [L][E] picks before any drop
};

struct ExpertLoad {
  TraceHeader header;  ///< has_picks is false
  std::string model_hash, stage;
  int64_t steps = 0, tokens = 0;
  std::vector<uint64_t> dropped;              ///< [L]
  std::vector<std::vector<uint64_t>> counts;  ///< [L][E], the sum over the windows
  std::vector<ExpertLoadWindow> windows;      ///< in order; at least one
};

/// A file of it begins with a brace and its format, a trace never does. False for what cannot be read.
bool looks_like_expert_load(const std::string& path);

/// Errors: bad_file, with the member, what was found and what was expected; also when nothing was recorded.
Result<ExpertLoad> read_expert_load(const std::string& path);
Result<ExpertLoad> parse_expert_load(std::string_view text, std::string_view name);

}  // namespace switchyard::moe
