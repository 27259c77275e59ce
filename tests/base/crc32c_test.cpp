// SPDX-License-Identifier: Apache-2.0
// The check value of the polynomial and vectors of RFC 3720, appendix B.4; parts in sequence give the checksum of the
// whole.
#include "base/crc32c.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

uint32_t crc_of(const std::string& text, uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(text)), before);
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  EXPECT_EQ(crc_of(rising), 0x46DD794EU);
}

TEST(Crc32c, GoesOnFromAnyPlace) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc_of(text.substr(cut), crc_of(text.substr(0, cut))), crc_of(text)) << cut;
}

}  // namespace
}  // namespace switchyard
