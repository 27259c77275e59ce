// SPDX-License-Identifier: Apache-2.0
// Rope frequencies against numbers computed from the published formulas in double, and the cache's arithmetic.
#include "attention/rope.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "attention/cache.h"

namespace switchyard::attention {
namespace {

void expect_frequencies(const RopeTable& table, const std::vector<int>& index,
                        const std::vector<double>& expected) {
  for (size_t i = 0; i < index.size(); ++i) {
    EXPECT_NEAR(table.inv_freq()[index[i]] / expected[i], 1, 2e-8) << "dimension " << index[i];
  }
}

TEST(Rope, YarnAsDeepSeekV3) {
  const RopeSpec spec{.rotary_dim = 64,
                      .theta = 1e4,
                      .scaling = RopeSpec::Scaling::yarn,
                      .factor = 40,
                      .max_positions = 163840,
                      .original_positions = 4096,
                      .mscale = 1,
                      .mscale_all_dim = 1};
  const RopeTable table = RopeTable::create(spec).value();
  expect_frequencies(table, {0, 8, 10, 16, 20, 31},
                     {1, 0.1, 0.0562341325, 0.0055, 7.90569415e-4, 3.33380358e-6});
  EXPECT_DOUBLE_EQ(table.attention_factor(), 1);
}

TEST(Rope, YarnWithoutTruncation) {
  const RopeSpec spec{.rotary_dim = 64,
                      .theta = 150000,
                      .scaling = RopeSpec::Scaling::yarn,
                      .factor = 32,
                      .max_positions = 131072,
                      .original_positions = 4096,
                      .truncate = false};
  const RopeTable table = RopeTable::create(spec).value();
  expect_frequencies(table, {8, 10, 16, 20, 31},
                     {0.0508132748, 0.0193350011, 4.56483919e-4, 1.81883367e-5, 3.02351143e-7});
  EXPECT_NEAR(table.attention_factor(), 1.3465736, 1e-7);
}

TEST(Rope, YarnAttentionFactor) {
  RopeSpec spec{.rotary_dim = 64,
                .theta = 1e4,
                .scaling = RopeSpec::Scaling::yarn,
                .factor = 40,
                .max_positions = 163840,
                .original_positions = 4096};
  const auto factor = [&spec] { return RopeTable::create(spec).value().attention_factor(); };
  EXPECT_NEAR(factor(), 1.3688879, 1e-7);
  spec.mscale = 0.707;  // alone it says nothing
  EXPECT_NEAR(factor(), 1.3688879, 1e-7);
  spec.mscale_all_dim = 1;
  EXPECT_NEAR(factor(), 1.2608038 / 1.3688879, 1e-7);
  spec.attention_factor = 2.5;
  EXPECT_DOUBLE_EQ(factor(), 2.5);
}

// The angle is the f32 product of position and frequency, and the factor scales both cos and sin.
TEST(Rope, FillsCosAndSinOfF32Angles) {
  const RopeSpec spec{.rotary_dim = 64,
                      .theta = 1e4,
                      .scaling = RopeSpec::Scaling::yarn,
                      .factor = 40,
                      .max_positions = 163840,
                      .original_positions = 4096};
  const RopeTable table = RopeTable::create(spec).value();
  std::vector<int32_t> position, length;
  for (int32_t p = 0; p < 131072; p = p * 2 + 1) position.push_back(p);
  length.assign(position.size(), 131072);
  std::vector<float> cos(position.size() * 32), sin(position.size() * 32);
  Pool pool({.num_threads = 2, .pin = false});
  table.fill(position, length, cos.data(), sin.data(), Stream({}, pool));
  const double factor = table.attention_factor();
  for (size_t t = 0; t < position.size(); ++t) {
    for (size_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(position[t]) * static_cast<float>(table.inv_freq()[i]);
      const auto exact = static_cast<double>(angle);
      EXPECT_NEAR(static_cast<double>(cos[t * 32 + i]), std::cos(exact) * factor, 3e-7);
      EXPECT_NEAR(static_cast<double>(sin[t * 32 + i]), std::sin(exact) * factor, 3e-7);
    }
  }
}

TEST(Rope, Llama3) {
  RopeSpec spec{.rotary_dim = 128,
                .theta = 5e5,
                .scaling = RopeSpec::Scaling::llama3,
                .factor = 8,
                .max_positions = 131072,
                .original_positions = 8192,
                .low_freq_factor = 1,
                .high_freq_factor = 4};
  expect_frequencies(
      RopeTable::create(spec).value(), {0, 20, 28, 30, 32, 36, 63},
      {1, 0.0165604401, 0.00321144599, 0.00137189357, 5.24846161e-4, 7.78465527e-5, 3.06892599e-7});
  spec.high_freq_factor = 1;  // equal bounds: nothing lies between, and nothing is divided by zero
  const RopeTable equal = RopeTable::create(spec).value();
  for (const double f : equal.inv_freq()) EXPECT_TRUE(std::isfinite(f) && f > 0);
}

TEST(Rope, LinearAndDynamic) {
  RopeSpec spec{.rotary_dim = 8,
                .theta = 1e4,
                .scaling = RopeSpec::Scaling::linear,
                .factor = 4,
                .max_positions = 16,
                .original_positions = 16};
  expect_frequencies(RopeTable::create(spec).value(), {0, 1}, {0.25, 0.025});
  spec.scaling = RopeSpec::Scaling::dynamic;
  spec.factor = 2;
  const RopeTable table = RopeTable::create(spec).value();
  Pool pool({.num_threads = 1, .pin = false});
  const std::vector<int32_t> position = {3, 3}, length = {16, 32};
  std::vector<float> cos(8), sin(8);
  table.fill(position, length, cos.data(), sin.data(), Stream({}, pool));
  // Within the trained length nothing changes; at twice the length the base is theta * 3^(8/6).
  EXPECT_NEAR(sin[1], std::sin(3 * 0.1), 1e-6);
  const double base = 1e4 * std::pow(3.0, 8.0 / 6.0);
  EXPECT_NEAR(sin[5], std::sin(3 * std::pow(base, -0.25)), 1e-6);
}

TEST(Rope, AbsurdSettingsAreAnError) {
  const RopeSpec spec{.rotary_dim = 64,
                      .theta = 1e300,
                      .scaling = RopeSpec::Scaling::linear,
                      .factor = 1e300,
                      .max_positions = 16,
                      .original_positions = 16};
  EXPECT_EQ(RopeTable::create(spec).error().code, Code::bad_file);
}

TEST(Cache, LayersDoNotOverlapAndAbsurdSizesAreNamed) {
  const CacheSpec spec{.layers = 3,
                       .kv_heads = 2,
                       .head_dim = 8,
                       .block_tokens = 16,
                       .dtype = DType::bf16,
                       .num_blocks = 5};
  const PagedCache cache = PagedCache::create(spec).value();
  EXPECT_EQ(cache.bytes(), 3 * 2 * 2 * 8 * 16 * 2 * 5);
  const auto at = [](void* p) { return static_cast<std::byte*>(p); };
  EXPECT_EQ(at(cache.v(0)) - at(cache.k(0)), 2 * 8 * 16 * 2 * 5);
  EXPECT_EQ(at(cache.k(1)) - at(cache.v(0)), 2 * 8 * 16 * 2 * 5);
  CacheSpec huge = spec;
  huge.num_blocks = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(PagedCache::create(huge).error().code, Code::out_of_memory);
  huge.num_blocks = int64_t{1} << 50;
  const auto failed = PagedCache::create(huge);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("key/value cache"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::attention
