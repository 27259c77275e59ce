// SPDX-License-Identifier: Apache-2.0
#include "client/sse.h"

namespace switchyard::client {

bool SseParser::push(std::string_view bytes, const std::function<bool(std::string_view)>& on_data) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes) {
      overflowed_ = true;
      return false;
    }
    if (end == std::string_view::npos) return true;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!end_line(on_data)) return false;
  }
  return true;
}

bool SseParser::end_line(const std::function<bool(std::string_view)>& on_data) {
  std::string_view line = line_;
  bool goes_on = true;
  if (line.empty()) {
    if (has_data_) goes_on = on_data(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(line.size() > 4 ? 5 : 4);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return goes_on;
}

}  // namespace switchyard::client
