// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4-128 against OpenSSL 3 (openssl mac -macopt size:16 SIPHASH), whose first results are those of the
// authors' reference code.
#include "base/siphash.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace switchyard {
namespace {

constexpr SipKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::string hex(const std::array<uint64_t, 2>& words) {
  std::string text;
  for (const uint64_t word : words)
    for (int i = 0; i < 8; ++i) text += fmt::format("{:02X}", word >> (8 * i) & 0xff);
  return text;
}

std::vector<std::byte> bytes_0_to(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(SipHash, VectorsOfTheReference) {
  const std::pair<size_t, const char*> vectors[] = {
      {0, "A3817F04BA25A8E66DF67214C7550293"},  {1, "DA87C1D86B99AF44347659119B22FC45"},
      {7, "A1F1EBBED8DBC153C0B84AA61FF08239"},  {8, "3B62A9BA6258F5610F83E264F31497B4"},
      {15, "5493E99933B0A8117E08EC0F97CFC3D9"}, {16, "6EE2A4CA67B054BBFD3315BF85230577"},
      {63, "5150D1772F50834A503E069A973FBD7C"}};
  for (const auto& [count, expected] : vectors)
    EXPECT_EQ(hex(siphash_128(kKey, bytes_0_to(count))), expected) << count << " bytes";
}

TEST(SipHash, HeadStandsBeforeTheBytes) {
  const uint64_t head[] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const auto all = bytes_0_to(63);
  EXPECT_EQ(siphash_128(kKey, std::span(all).subspan(16), head), siphash_128(kKey, all));
}

}  // namespace
}  // namespace switchyard
