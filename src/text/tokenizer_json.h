// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.json.
#pragma once
#include <memory>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace switchyard::text {

/// `json` is the file's content and `name` what messages call it.
/// Errors: Code::bad_file when it is damaged, Code::unsupported for parts that are not known.
Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view json, std::string_view name,
                                                       const TokenizerConfig& config);

}  // namespace switchyard::text
