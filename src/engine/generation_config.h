// SPDX-License-Identifier: Apache-2.0
// What a model wants by default: generation_config.json of its folder.
//
// Order of the reference framework: what the user says, then this file, then the built-in values
// (no sampling, so temperature 0; when sampling is on, temperature 1, top-k 50, top-p 1, repetition
// penalty 1).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/request.h"

#include "base/json.h"
#include "base/result.h"

namespace switchyard::engine {

struct GenerationDefaults {
  SamplingParams sampling;
  std::vector<int32_t> eos_ids;  ///< empty: the file does not say
};

/// Reads generation_config.json; an absent file gives the built-in values.
/// Errors: Code::bad_file naming the file, the key, what was found and what was expected.
Result<GenerationDefaults> read_generation_config(const std::string& folder);

/// The same from a parsed text; `name` starts every message.
Result<GenerationDefaults> parse_generation_config(const Json& json, std::string_view name);

}  // namespace switchyard::engine
