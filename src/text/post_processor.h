// SPDX-License-Identifier: Apache-2.0
// Post-processor: the special tokens before and after a text.
// Kinds: TemplateProcessing (of a single text), ByteLevel (offsets only), Sequence.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace switchyard::text {

struct SpecialsAround {
  std::vector<int32_t> before, after;
};

/// `json` may be null. The ids in the file are trusted only within [0, kMaxTokenId].
Result<SpecialsAround> read_post_processor(const Json* json, const std::string& where);

}  // namespace switchyard::text
