// SPDX-License-Identifier: Apache-2.0
// The version of the library, as in CMakeLists.txt and CHANGELOG.md (a test compares them).
#pragma once
namespace switchyard {
inline constexpr const char* kVersion = "0.1.0";
}
