// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>

namespace switchyard {
namespace {

constexpr size_t kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

/// tables[s][b]: what byte b contributes when s more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    tables[0][byte] = crc;
  }
  for (size_t s = 1; s < kSlices; ++s)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[s - 1][byte];
      tables[s][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t octet(std::byte byte) { return std::to_integer<uint32_t>(byte); }

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) noexcept {
  uint32_t crc = ~before;
  for (; bytes.size() >= kSlices; bytes = bytes.subspan(kSlices)) {
    uint32_t next = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t from_crc = i < 4 ? crc >> (8 * i) : 0;
      next ^= kTables[kSlices - 1 - i][(from_crc ^ octet(bytes[i])) & 0xFF];
    }
    crc = next;
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ octet(byte)) & 0xFF];
  return ~crc;
}

}  // namespace switchyard
