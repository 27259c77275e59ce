// SPDX-License-Identifier: Apache-2.0
// Detection agrees with the kernel's own list, and SWITCHYARD_MAX_ISA caps it.
#include "device/cpu_features.h"

#include <cstdlib>
#include <sstream>

#include <gtest/gtest.h>

#include "base/files.h"

namespace switchyard {
namespace {

/// " flag flag ... " of the first processor.
std::string kernel_flags() {
  const Result<std::string> text = read_text_file("/proc/cpuinfo", 1 << 24);
  if (!text.ok()) return {};
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1) + " ";
  }
  return {};
}

TEST(CpuFeatures, AgreeWithTheKernel) {
  const std::string flags = kernel_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  // The kernel's names are ours. AMX may be refused to this process, so there only one side holds.
  for (uint64_t bit = kAvx2; bit <= kAmxInt8; bit <<= 1) {
    const bool listed = flags.find(" " + cpu_feature_names(bit) + " ") != std::string::npos;
    const bool detected = (cpu_features().detected & bit) != 0;
    if (bit >= kAmxTile && listed) continue;
    EXPECT_EQ(detected, listed) << cpu_feature_names(bit);
  }
}

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
  EXPECT_EQ(isa_level_name(kIsaAvx2 & ~kFma), "baseline");
  EXPECT_EQ(isa_level_name(0), "baseline");
  EXPECT_EQ(cpu_feature_names(kAvx2 | kFma), "avx2 fma");
  EXPECT_EQ(cpu_feature_names(0), "");
}

/// The exit status of a fresh process is whether the cap held: features are read once per process.
[[noreturn]] void exit_with_cap(const char* cap, uint64_t allowed, bool warned) {
  ::setenv("SWITCHYARD_MAX_ISA", cap, 1);
  const CpuFeatures& features = cpu_features();
  const bool capped = features.usable == (features.detected & allowed);
  std::_Exit(capped && (features.warning.find("SWITCHYARD_MAX_ISA") != std::string::npos) == warned
                 ? 0
                 : 1);
}

TEST(CpuFeaturesDeathTest, TheEnvironmentCapsWhatIsUsable) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ok = testing::ExitedWithCode(0);
  EXPECT_EXIT(exit_with_cap("baseline", 0, false), ok, "");
  EXPECT_EXIT(exit_with_cap("avx2", kIsaAvx2, false), ok, "");
  EXPECT_EXIT(exit_with_cap("avx512", kIsaAvx512, false), ok, "");
  EXPECT_EXIT(exit_with_cap("amx", kIsaAmx, false), ok, "");
  EXPECT_EXIT(exit_with_cap("neon", ~uint64_t{0}, true), ok, "");
}

}  // namespace
}  // namespace switchyard
