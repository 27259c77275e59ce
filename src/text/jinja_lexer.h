// SPDX-License-Identifier: Apache-2.0
// Lexer: template source to tokens, with white space already as trim_blocks, lstrip_blocks and the signs
// of the delimiters ({%- -%} {%+ +%}) want it. Comments leave no token; {% raw %} becomes text.
// Reference: jinja.palletsprojects.com/templates, "Whitespace Control".
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::text::jinja {

struct Token {
  enum class Kind : uint8_t {
    text,
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Kind kind = Kind::end;
  std::string text;  // of a string: its value; of a number: without underscores
  int line = 1;
};

/// Always ends with a token of Kind::end. Errors: Code::bad_request, with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace switchyard::text::jinja
