// SPDX-License-Identifier: Apache-2.0
// Result and its macros for our own code. SWITCHYARD_TRY passes an error up; fail() makes one with {fmt}.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "switchyard/result.h"

namespace switchyard {

/// An Error with a formatted message; the source line is that of the caller.
///   return fail(Code::bad_file, "{}: expected {} bytes, found {}", path, expected, found);
template <class... Args>
struct FailFormat {
  fmt::format_string<Args...> text;
  const char* file;
  int line;
  template <class S>
  consteval FailFormat(const S& s, const char* at_file = __builtin_FILE(),  // NOLINT
                       int at_line = __builtin_LINE())
      : text(s), file(at_file), line(at_line) {}
};

template <class... Args>
Error fail(Code code, FailFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  return Error(code, fmt::format(format.text, std::forward<Args>(args)...), format.file,
               format.line);
}

/// The same error with words in front of its message (for example the file's name).
inline Error with_context(Error error, std::string_view context) {
  error.message = fmt::format("{}: {}", context, error.message);
  return error;
}

}  // namespace switchyard

#define SWITCHYARD_CONCAT_INNER(a, b) a##b
#define SWITCHYARD_CONCAT(a, b) SWITCHYARD_CONCAT_INNER(a, b)

/// SWITCHYARD_TRY(expr): returns the error of a Result from the enclosing function, and goes on otherwise.
#define SWITCHYARD_TRY(expr)                                                          \
  do {                                                                                \
    auto&& switchyard_try_result = (expr);                                            \
    if (!switchyard_try_result.ok()) return std::move(switchyard_try_result).error(); \
  } while (false)

/// SWITCHYARD_ASSIGN(declaration, expr): declares or assigns the value, or returns the error.
///   SWITCHYARD_ASSIGN(const Json json, parse_json(text));
#define SWITCHYARD_ASSIGN(target, expr) \
  SWITCHYARD_ASSIGN_INNER(SWITCHYARD_CONCAT(switchyard_result_, __LINE__), target, expr)
#define SWITCHYARD_ASSIGN_INNER(name, target, expr) \
  auto name = (expr);                               \
  if (!name.ok()) return std::move(name).error();   \
  target = *std::move(name)
