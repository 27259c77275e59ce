// SPDX-License-Identifier: Apache-2.0
// SseParser: the data of server-sent events from the bytes of a stream, however they were cut.
// Source: WHATWG HTML, 9.2.6 "Interpreting an event stream": lines end with CR, LF or both; "data:" lines of one event are
// joined by LF; comments and other fields are skipped; a blank line ends the event.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace switchyard::client {

class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = size_t{4} << 20;

  /// Calls `on_data` for each event that has come to its end; it returns false to end the reading. False when it did so;
  /// false also, with overflowed(), for an event without a bound.
  bool push(std::string_view bytes, const std::function<bool(std::string_view data)>& on_data);
  bool overflowed() const noexcept { return overflowed_; }

 private:
  bool end_line(const std::function<bool(std::string_view)>& on_data);

  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, overflowed_ = false;
};

}  // namespace switchyard::client
