// SPDX-License-Identifier: Apache-2.0
// Log probabilities as OpenAI's clients read them: a list for chats, four parallel lists for completions. JSON has no
// infinity: nothing is below -9999.0, OpenAI's own stand-in, and nothing is NaN.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "switchyard/request.h"

#include "base/json.h"

namespace switchyard::serve {

using TokenBytes = std::function<std::string(int32_t)>;

/// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}], "refusal": null}
void write_chat_logprobs(JsonWriter& json, std::span<const TokenLogprobs> tokens,
                         const TokenBytes& bytes);
/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; the first token begins behind `offset` characters.
void write_completion_logprobs(JsonWriter& json, std::span<const TokenLogprobs> tokens,
                               const TokenBytes& bytes, int64_t offset);

/// Characters that the bytes begin.
int64_t count_characters(const std::string& bytes);

}  // namespace switchyard::serve
