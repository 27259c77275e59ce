// SPDX-License-Identifier: Apache-2.0
// Regex: a compiled pattern of a tokenizer file, with limits on what one match may cost.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::text {

/// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

/// Immutable; one pattern serves many threads. Copies share the compiled code.
class Regex {
 public:
  /// The pattern is in the syntax of tokenizer.json (Oniguruma's Ruby syntax, UTF-8).
  /// Errors: Code::bad_file when it is broken, Code::unsupported for what has no equal here.
  static Result<Regex> compile(std::string_view pattern);

  /// All matches in `text` (valid UTF-8), from left to right, none inside another. An empty match
  /// right behind the one before does not count.
  /// Errors: Code::bad_request when a match costs more than the limits allow.
  Result<std::vector<Span>> find_all(std::string_view text) const;

  const std::string& pattern() const noexcept { return pattern_; }

 private:
  struct Compiled;
  std::string pattern_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace switchyard::text
