// SPDX-License-Identifier: Apache-2.0
// Builds safetensors files by hand, right or wrong.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace switchyard::checkpoint {

/// A file of a header and `data_bytes` zero bytes; the length field can lie.
inline std::string file_of(const std::string& header, size_t data_bytes = 0,
                           std::optional<uint64_t> length = std::nullopt) {
  const uint64_t n = length.value_or(header.size());
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) file += static_cast<char>((n >> shift) & 0xFF);
  return file + header + std::string(data_bytes, '\0');
}

/// One entry of a header.
inline std::string tensor(const std::string& name, const std::string& dtype,
                          const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}": {{"dtype": "{}", "shape": {}, "data_offsets": {}}})", name, dtype,
                     shape, offsets);
}

}  // namespace switchyard::checkpoint
