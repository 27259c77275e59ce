// SPDX-License-Identifier: Apache-2.0
// ApiKeys: who may ask. Keys live in memory alone and are never logged.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::serve {

class ApiKeys {
 public:
  static constexpr size_t kMaxBytes = 256;

  /// Errors: Code::bad_request for a key that is empty, too long, or holds blanks or control characters.
  Status add(std::string_view key);
  /// One key a line; empty lines and lines that start with # are skipped. Errors: also when the file holds none.
  Status add_file(const std::string& path);
  bool empty() const noexcept { return keys_.empty(); }

  /// Whether an Authorization header names one of the keys. The time depends neither on the keys nor on how much of
  /// one was guessed.
  bool accepts(std::string_view authorization) const noexcept {
    return find(authorization).has_value();
  }
  /// The number of that key, in the order in which they were added.
  std::optional<size_t> find(std::string_view authorization) const noexcept;
  size_t size() const noexcept { return keys_.size(); }

 private:
  /// The bytes, zeros, and the length last.
  using Padded = std::array<unsigned char, kMaxBytes + 2>;
  static Padded padded(std::string_view key) noexcept;

  std::vector<Padded> keys_;
};

}  // namespace switchyard::serve
