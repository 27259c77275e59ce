// SPDX-License-Identifier: Apache-2.0
// Variables are read through the documented list alone.
#include "base/environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Environment, UnsetAndEmptyAreNothing) {
  ::unsetenv("SWITCHYARD_KERNEL");
  EXPECT_EQ(environment("SWITCHYARD_KERNEL"), std::nullopt);
  ::setenv("SWITCHYARD_KERNEL", "", 1);
  EXPECT_EQ(environment("SWITCHYARD_KERNEL"), std::nullopt);
  ::setenv("SWITCHYARD_KERNEL", "grouped_gemm=ref", 1);
  EXPECT_EQ(environment("SWITCHYARD_KERNEL"), "grouped_gemm=ref");
  ::unsetenv("SWITCHYARD_KERNEL");
}

TEST(Environment, OnlyOneMeansDeterministic) {
  for (const auto& [value, expected] : {std::pair{"1", true}, {"0", false}, {"yes", false}}) {
    ::setenv("SWITCHYARD_DETERMINISTIC", value, 1);
    EXPECT_EQ(deterministic(), expected) << value;
  }
  ::unsetenv("SWITCHYARD_DETERMINISTIC");
  EXPECT_FALSE(deterministic());
}

TEST(Environment, EveryVariableIsOursAndExplained) {
  for (const EnvironmentVariable& variable : environment_variables()) {
    EXPECT_TRUE(variable.name.starts_with("SWITCHYARD_")) << variable.name;
    EXPECT_FALSE(variable.help.empty()) << variable.name;
  }
}

TEST(EnvironmentDeathTest, UndocumentedNamesAreABug) {
  EXPECT_DEATH((void)environment("SWITCHYARD_SECRET"),
               "undocumented environment variable SWITCHYARD_SECRET");
}

}  // namespace
}  // namespace switchyard
