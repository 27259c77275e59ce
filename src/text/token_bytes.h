// SPDX-License-Identifier: Apache-2.0
// Token bytes: what each token adds to a text whose beginning is written already, as bytes; halves of characters too.
#pragma once
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace switchyard::text {

/// [V] empty for special tokens and for ids that name nothing. Decodes each token once: tens of milliseconds for the largest
/// vocabularies.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer);

}  // namespace switchyard::text
