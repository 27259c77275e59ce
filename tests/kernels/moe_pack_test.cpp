// SPDX-License-Identifier: Apache-2.0
// The packed layout of the device kernels, on the host: every weight is where the documented address
// says, found by walking blocks, atoms and chunks rather than by the formula that packed it.
#include "kernels/ops/moe_pack.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

// Reads a packed matrix as shared memory would hold it: atom by atom, chunks unswizzled.
std::vector<uint16_t> unpack(const std::vector<uint16_t>& packed, int64_t rows, int64_t inputs) {
  std::vector<uint16_t> plain(rows * inputs, 0xdead);
  size_t at = 0;
  for (int64_t row0 = 0; row0 < rows; row0 += 32) {
    for (int64_t k0 = 0; k0 < inputs; k0 += 64) {
      for (int64_t row = row0; row < row0 + 32; ++row) {
        for (int place = 0; place < 8; ++place) {
          const int64_t chunk = place ^ (row & 7);
          for (int i = 0; i < 8; ++i) plain[row * inputs + k0 + chunk * 8 + i] = packed[at++];
        }
      }
    }
  }
  EXPECT_EQ(at, packed.size());
  return plain;
}

std::vector<uint16_t> numbered(int64_t count, uint16_t first) {
  std::vector<uint16_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

struct Shape {
  int64_t width, ffn_width;
};
constexpr Shape kShapes[] = {{64, 64}, {128, 192}, {8, 8}, {72, 40}, {200, 100}, {64, 1}};

TEST(MoePack, W13AlternatesGateAndUpInGroupsOfEight) {
  for (const auto [width, ffn_width] : kShapes) {
    const auto gate = numbered(width * ffn_width, 1), up = numbered(width * ffn_width, 30000);
    std::vector<uint16_t> packed(MoePack::w13_bytes(width, ffn_width) / 2, 0xdead);
    moe_pack_w13(gate.data(), up.data(), width, ffn_width, packed.data());
    const int64_t inputs = MoePack::padded(width), hidden = MoePack::padded(ffn_width);
    const auto plain = unpack(packed, 2 * hidden, inputs);
    for (int64_t row = 0; row < 2 * hidden; ++row) {
      // Groups of eight rows: gate of columns 0-7, up of 0-7, gate of 8-15, up of 8-15, ...
      const int64_t group = row / 8, column = group / 2 * 8 + row % 8;
      const auto& source = group % 2 == 0 ? gate : up;
      for (int64_t k = 0; k < inputs; ++k) {
        const bool real = column < ffn_width && k < width;
        ASSERT_EQ(plain[row * inputs + k], real ? source[column * width + k] : 0)
            << "row " << row << " input " << k << " of width " << width << " ffn " << ffn_width;
      }
    }
  }
}

TEST(MoePack, W2KeepsItsRows) {
  for (const auto [width, ffn_width] : kShapes) {
    const auto down = numbered(width * ffn_width, 1);
    std::vector<uint16_t> packed(MoePack::w2_bytes(width, ffn_width) / 2, 0xdead);
    moe_pack_w2(down.data(), width, ffn_width, packed.data());
    const int64_t inputs = MoePack::padded(ffn_width), rows = MoePack::padded(width);
    const auto plain = unpack(packed, rows, inputs);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < inputs; ++k) {
        const bool real = row < width && k < ffn_width;
        ASSERT_EQ(plain[row * inputs + k], real ? down[row * ffn_width + k] : 0);
      }
    }
  }
}

template <int kStrips>
void expect_units_on_their_side(int strips) {
  std::vector<int> seen;
  for (const int side : {0, 1}) {
    for (int index = 0; index < strips / 2 / kStrips; ++index) {
      const int unit = MoePack::on_side<kStrips>(index, side);
      for (int i = 0; i < kStrips; ++i) {
        seen.push_back(unit * kStrips + i);
        EXPECT_EQ(MoePack::half_of(seen.back(), strips), side) << "strip " << seen.back();
      }
    }
  }
  ASSERT_EQ(std::ssize(seen), strips);
  std::ranges::sort(seen);
  for (int strip = 0; strip < strips; ++strip) ASSERT_EQ(seen[strip], strip);
}

TEST(MoePack, UnitsOnASideAreThoseOfItsHalves) {
  for (const int strips : {16, 32, 48, 256}) {
    SCOPED_TRACE(strips);
    expect_units_on_their_side<1>(strips);
    expect_units_on_their_side<4>(strips);
    expect_units_on_their_side<8>(strips);
  }
}

TEST(MoePack, HalvesOfPairsAreAllStrips) {
  for (const int strips : {2, 4, 14, 16, 18, 32, 60, 64}) {
    for (int strip = 0; strip < strips; ++strip) {
      const int pair = MoePack::pair_of(strip, strips), half = MoePack::half_of(strip, strips);
      EXPECT_LT(pair, strips / 2);
      EXPECT_EQ(MoePack::strip_of(pair, half, strips), strip) << "of " << strips;
    }
  }
}

}  // namespace
}  // namespace switchyard
