// SPDX-License-Identifier: Apache-2.0
// From segments of rendered text to token ids [T], with special tokens from trusted segments alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "text/jinja_text.h"
#include "text/tokenizer.h"

namespace switchyard::text {

/// No BOS or EOS is added. Where no segment of a user spells a special token, the ids are those of the whole text.
Result<std::vector<int32_t>> encode_segments(std::span<const Segment> segments,
                                             const Tokenizer& tokenizer);

}  // namespace switchyard::text
