// SPDX-License-Identifier: Apache-2.0
// What a call needs of the model before its prompt can be written: how it calls tools, and what its template reads.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "switchyard/engine.h"

#include "serve/call.h"

namespace switchyard::serve {

/// Turns what a chat says of tools into a constraint of its output, where one is asked for. `format` is that of the model, when
/// it is shown tools.
std::optional<ApiError> prepare_call(const Engine& engine, Call& call,
                                     std::optional<ToolFormat>& format);

/// Of tokens and their likeliest rivals, in an answer that is held until its end: about 100 bytes each.
constexpr size_t kMaxReported = size_t{1} << 20;
/// Refuses a whole answer that could have more log probabilities; lengths are known by now. Streams have no such bound.
std::optional<ApiError> check_reports(const Call& call);

/// Why messages or a prompt became no tokens.
ApiError template_error(const Error& error, Endpoint endpoint);

/// A name for a call of a tool: "call_" and 24 hexadecimal digits, or just as many digits as are asked for.
std::string new_call_id(int characters);

}  // namespace switchyard::serve
