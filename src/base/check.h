// SPDX-License-Identifier: Apache-2.0
// Checks of our own invariants. A failed check is a bug of ours, never of the input: it prints the values and aborts.
#pragma once
#include <string>

#include <fmt/format.h>

namespace switchyard {

/// Reports a broken invariant on the standard error stream and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail) noexcept;

}  // namespace switchyard

/// Always checked. SWITCHYARD_CHECK(a < b, "a {} b {}", a, b);
#define SWITCHYARD_CHECK(condition, ...)                                                       \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::switchyard::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)

/// Checked in debug builds alone: for the inside of loops.
#ifdef NDEBUG
#define SWITCHYARD_DCHECK(condition, ...) \
  do {                                    \
  } while (false && (condition))
#else
#define SWITCHYARD_DCHECK(condition, ...) SWITCHYARD_CHECK(condition, __VA_ARGS__)
#endif

#define SWITCHYARD_UNREACHABLE(...) \
  ::switchyard::check_failed(__FILE__, __LINE__, "unreachable", fmt::format("" __VA_ARGS__))
