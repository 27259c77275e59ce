// SPDX-License-Identifier: Apache-2.0
// CPU features form a lattice; the arena hands out aligned, disjoint pieces; CUDA's absence is an error, not a crash.
#include "device/device.h"

#include <gtest/gtest.h>

#include "device/arena.h"
#include "device/cpu_features.h"

namespace switchyard {
namespace {

TEST(CpuFeatures, UsableIsPartOfDetectedAndLevelsContainEachOther) {
  const CpuFeatures& features = cpu_features();
  EXPECT_EQ(features.usable & ~features.detected, 0u);
  EXPECT_FALSE(features.model.empty());
  EXPECT_EQ(kIsaAvx512 & kIsaAvx2, kIsaAvx2);
  EXPECT_EQ(kIsaAmx & kIsaAvx512, kIsaAvx512);
}

TEST(CpuFeatures, LevelNames) {
  EXPECT_EQ(isa_level_name(kIsaAmx), "amx");
  EXPECT_EQ(isa_level_name(kIsaAvx512), "avx512");
  EXPECT_EQ(isa_level_name(kIsaAvx512 & ~kAvx512bf16), "avx2");
  EXPECT_EQ(isa_level_name(0), "baseline");
  EXPECT_EQ(cpu_feature_names(kAvx2 | kFma), "avx2 fma");
}

TEST(Arena, PiecesAreAlignedAndComeBack) {
  Result<Arena> arena = Arena::create(Arena::room<float>(3) + Arena::room<int32_t>(17));
  ASSERT_TRUE(arena.ok());
  const auto a = arena->take<float>(3);
  const int64_t mark = arena->mark();
  const auto b = arena->take<int32_t>(17);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % Arena::kAlignment, 0u);
  EXPECT_GE(reinterpret_cast<std::byte*>(b.data()), reinterpret_cast<std::byte*>(a.data() + 3));
  arena->rewind(mark);
  EXPECT_EQ(arena->take<int32_t>(17).data(), b.data());
  arena->reset();
  EXPECT_EQ(arena->take<float>(1).data(), a.data());
  EXPECT_EQ(arena->peak(), arena->size());
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(arena->take<float>(1000), "broken invariant");
}

TEST(Cuda, ListsDevicesOrSaysWhatIsMissing) {
  const auto devices = cuda_devices();
  if (devices.ok()) {
    for (const DeviceFacts& device : *devices) EXPECT_GT(device.memory_bytes, 0);
  } else {
    EXPECT_EQ(devices.error().code, Code::unavailable);
    EXPECT_FALSE(devices.error().message.empty());
  }
}

}  // namespace
}  // namespace switchyard
