// SPDX-License-Identifier: Apache-2.0
// Where a JSON text breaks: simdjson says what is wrong, this scan says at which byte. Used after a failure alone.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace switchyard {

struct JsonFault {
  bool found = false;  ///< false: this scan sees nothing wrong
  size_t offset = 0;   ///< byte at which the text stops being JSON
  std::string what;    ///< "expected a value", ...
};

/// Scans for the first byte at which `text` breaks the rules of json.h (duplicate keys excepted). Linear time, no
/// recursion.
JsonFault locate_json_fault(std::string_view text);

}  // namespace switchyard
