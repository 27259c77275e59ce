// SPDX-License-Identifier: Apache-2.0
// The JSON text of a call, as the model wrote it. Our reader of JSON takes integers of 64 bits; a model may write longer ones,
// and a client must get them digit by digit.
#pragma once
#include <string>
#include <string_view>

namespace switchyard::serve {

/// The same text, where integers of more than 18 digits are reals, so that it can be read: to be checked, not to be sent.
std::string with_long_integers_as_reals(std::string_view json);

/// The text of a member's value in an object that is valid JSON; empty when it has none of that name.
std::string_view member_text(std::string_view object, std::string_view name);

}  // namespace switchyard::serve
