// SPDX-License-Identifier: Apache-2.0
#include "serve/logprobs_json.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/utf8.h"

namespace switchyard::serve {
namespace {

constexpr float kFloor = -9999.0f;

double logprob_of(const TokenLogprobs::One& one) {
  return static_cast<double>(one.logprob > kFloor ? one.logprob : kFloor);  // NaN is not above
}

/// The text of a token; of one that holds no whole characters its bytes, as OpenAI spells them: "\xe2\x80".
std::string token_text(const std::string& bytes, std::string_view prefix) {
  if (is_utf8(bytes)) return bytes;
  std::string text(prefix);
  for (const char byte : bytes)
    text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<uint8_t>(byte)));
  return text;
}

void write_one(JsonWriter& json, const TokenLogprobs::One& one, const TokenBytes& bytes) {
  const std::string of_token = bytes(one.token);
  json.field("token", token_text(of_token, "")).field("logprob", logprob_of(one));
  json.key("bytes").begin_array();
  for (const char byte : of_token) json.integer(static_cast<uint8_t>(byte));
  json.end_array();
}

/// By text. Of tokens with one text the likelier one counts; the chosen one is always among them.
void write_top(JsonWriter& json, const TokenLogprobs& token, const TokenBytes& bytes) {
  std::set<std::string> written;
  const auto write = [&](const TokenLogprobs::One& one) {
    const std::string text = token_text(bytes(one.token), "bytes:");
    if (written.insert(text).second) json.field(text, logprob_of(one));
  };
  json.begin_object();
  for (const TokenLogprobs::One& one : token.top) write(one);
  write(token.chosen);
  json.end_object();
}

}  // namespace

int64_t count_characters(const std::string& bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

void write_chat_logprobs(JsonWriter& json, std::span<const TokenLogprobs> tokens,
                         const TokenBytes& bytes) {
  json.begin_object().key("content").begin_array();
  for (const TokenLogprobs& token : tokens) {
    json.begin_object();
    write_one(json, token.chosen, bytes);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprobs::One& one : token.top) {
      json.begin_object();
      write_one(json, one, bytes);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(JsonWriter& json, std::span<const TokenLogprobs> tokens,
                               const TokenBytes& bytes, int64_t offset) {
  json.begin_object().key("tokens").begin_array();
  for (const TokenLogprobs& token : tokens)
    json.string(token_text(bytes(token.chosen.token), "bytes:"));
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) json.real(logprob_of(token.chosen));
  json.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprobs& token : tokens) write_top(json, token, bytes);
  json.end_array().key("text_offset").begin_array();
  for (const TokenLogprobs& token : tokens) {
    json.integer(offset);
    offset += count_characters(bytes(token.chosen.token));
  }
  json.end_array().end_object();
}

}  // namespace switchyard::serve
