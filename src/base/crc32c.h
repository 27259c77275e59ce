// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli): a checksum that finds damaged blocks of our own files. Not a defence against a forger.
// Cost: eight table look-ups for eight bytes. Source: the reflected polynomial 0x82F63B78 of RFC 3720.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace switchyard {

/// The checksum of `bytes`, or of what `before` was the checksum of followed by `bytes`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0) noexcept;

}  // namespace switchyard
