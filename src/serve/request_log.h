// SPDX-License-Identifier: Apache-2.0
// One line for each request, for people or for machines. No prompts, no outputs, no keys; what the client chose (the
// request id, nothing else) has its control characters escaped.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/request_record.h"

namespace switchyard::serve {

enum class LogFormat : unsigned char { none, text, json };

/// Nanoseconds since 1970.
int64_t wall_clock_ns();
/// Without a newline. `wall_ns`: when the request ended.
std::string request_line(LogFormat format, const RequestRecord& record, int64_t wall_ns);
/// The JSON lines' other kind: a message of the program, now.
std::string message_line(const char* level, std::string_view text);

}  // namespace switchyard::serve
