// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a model without words: random weights, made for measurements. A token's text is its number.
#pragma once
#include <memory>

#include "text/tokenizer.h"

namespace switchyard::engine {

std::unique_ptr<text::Tokenizer> make_number_tokenizer(int vocab);

}  // namespace switchyard::engine
