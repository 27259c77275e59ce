// SPDX-License-Identifier: Apache-2.0
// What a call needs of the model before its prompt can be written: how it calls tools, and what its template reads.
#pragma once
#include <optional>
#include <string>

#include "switchyard/engine.h"

#include "serve/call.h"

namespace switchyard::serve {

/// Turns what a chat says of tools into a constraint of its output, where one is asked for. `format` is that of the model, when
/// it is shown tools.
std::optional<ApiError> prepare_call(const Engine& engine, Call& call,
                                     std::optional<ToolFormat>& format);

/// Why messages or a prompt became no tokens.
ApiError template_error(const Error& error, Endpoint endpoint);

/// A name for a call of a tool: "call_" and 24 hexadecimal digits, or just as many digits as are asked for.
std::string new_call_id(int characters);

}  // namespace switchyard::serve
