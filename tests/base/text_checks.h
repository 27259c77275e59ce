// SPDX-License-Identifier: Apache-2.0
// EXPECT_TRUE(has(message, "part")): a failure shows the whole message.
#pragma once
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace switchyard {

inline testing::AssertionResult has(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected \"" << part << "\" in \"" << text << '"';
}

}  // namespace switchyard
