// SPDX-License-Identifier: Apache-2.0
// ConfigReader: reads config.json key by key and remembers which keys were read, so that a key that
// nobody knows, and that might change what the model means, is an error and not a silent
// difference.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace switchyard::model {

class ConfigReader {
 public:
  /// `object` must outlive the reader. `where` starts every message ("config.json").
  ConfigReader(const Json& object, std::string where);

  bool has(std::string_view key) const;  ///< present and not null; does not count as read

  /// An integer of [low, high]; without a fallback the key is required. null counts as absent.
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high,
                          std::optional<int64_t> fallback = std::nullopt);
  /// A size that is used as an int: [1, 2^30].
  Result<int> size(std::string_view key, std::optional<int> fallback = std::nullopt);
  /// A size whose key has a newer spelling; both may be present when they agree.
  Result<int> size_of_either(std::string_view key, std::string_view newer,
                             std::optional<int> fallback = std::nullopt);
  /// A count that may be zero: [0, 2^30].
  Result<int> count(std::string_view key, std::optional<int> fallback = std::nullopt);
  /// A finite number.
  Result<double> real(std::string_view key, std::optional<double> fallback = std::nullopt);
  Result<bool> boolean(std::string_view key, bool fallback);
  Result<std::string> text(std::string_view key,
                           std::optional<std::string> fallback = std::nullopt);
  /// An array of integers (or a single one); absent or null is empty.
  Result<std::vector<int64_t>> integers(std::string_view key);
  Result<std::vector<std::string>> texts(std::string_view key);
  /// The raw member, marked as read; null when absent.
  const Json* member(std::string_view key);

  /// Keys that are known to change nothing here.
  void ignore(std::initializer_list<std::string_view> keys);
  /// A key that must hold this value when present: other values are Code::unsupported, naming key,
  /// value and reason.
  Status require_text(std::string_view key, std::string_view value, std::string_view why);
  Status require_false(std::string_view key, std::string_view why);
  /// Refuses every key that was neither read nor ignored and is not null, false or empty.
  Status finish(std::string_view family) const;

  const std::string& where() const noexcept { return where_; }

 private:
  Error wrong_type(std::string_view key, std::string_view expected, const Json& found) const;
  const Json* read(std::string_view key);

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace switchyard::model
