// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. The library's way to say that the world is wrong.
//
// Nothing in the library throws, prints or exits on bad input: it returns an Error that says what
// was expected, what was found, where, and what to do. Callers who like exceptions call value(),
// which throws ResultError.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace switchyard {

/// The class of a failure; a server maps it to a status, the command line to an exit code.
enum class Code : unsigned char {
  bad_request,    ///< the caller's input is wrong
  bad_file,       ///< a file of a model is damaged or inconsistent
  unsupported,    ///< well formed, but this program cannot run it
  out_of_memory,  ///< memory or disk does not suffice
  unavailable,    ///< a part is missing or not ready
  cancelled,      ///< the caller gave up
  device,         ///< an accelerator or peer failed
  internal,       ///< our own fault that could be reported
  overloaded,     ///< too much is waiting already: try again later
  deadline,       ///< the time that the caller gave was not enough
};

/// The code's name as it is written in messages and JSON.
constexpr std::string_view code_name(Code code) {
  constexpr std::string_view kNames[] = {"bad_request", "bad_file",  "unsupported", "out_of_memory",
                                         "unavailable", "cancelled", "device",      "internal",
                                         "overloaded",  "deadline"};
  return kNames[static_cast<unsigned char>(code)];
}

/// A failure: its class, a message for a person, and the source line that made it.
struct [[nodiscard]] Error {
  Code code = Code::internal;
  std::string message;
  const char* file = "";  ///< source file that made the error
  int line = 0;           ///< line in that file

  Error() = default;
  Error(Code c, std::string text, const char* at_file = __builtin_FILE(),
        int at_line = __builtin_LINE())
      : code(c), message(std::move(text)), file(at_file), line(at_line) {}
};

/// Thrown by Result::value() alone, for callers who prefer exceptions.
class ResultError : public std::runtime_error {
 public:
  explicit ResultError(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A value of type T, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// The value; only when ok().
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  /// The error; only when not ok().
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

  /// The value, or a thrown ResultError.
  T& value() & {
    if (!ok()) throw ResultError(error());
    return **this;
  }
  T&& value() && {
    if (!ok()) throw ResultError(error());
    return std::move(**this);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const& noexcept { return error_; }
  Error&& error() && noexcept { return std::move(error_); }
  void value() const {
    if (failed_) throw ResultError(error_);
  }

 private:
  Error error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace switchyard
