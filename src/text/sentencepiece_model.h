// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.model or spiece.model (sentencepiece).
#pragma once
#include <memory>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace switchyard::text {

/// `bytes` is the file's content and `name` what messages call it. Control symbols written in a text
/// are special tokens. Where tokenizer_config.json is silent, the model's BOS goes before a text; a
/// model without BOS has its EOS put behind.
Result<std::unique_ptr<Tokenizer>> load_sentencepiece_model(std::string_view bytes,
                                                            std::string_view name,
                                                            const TokenizerConfig& config);

}  // namespace switchyard::text
