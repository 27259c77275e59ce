// SPDX-License-Identifier: Apache-2.0
// A token's text is what decoding gives for it behind another token, so that what is done to the first token of a text (a
// space that is stripped) is not done to it. Only where decoding has no whole characters to give, the spelling of the token is
// asked: <0xNN>, or the alphabet of byte-level vocabularies.
#include "text/token_bytes.h"

#include <string_view>

#include "text/byte_level.h"

namespace switchyard::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_whole(std::string_view text) {
  return !text.empty() && text.find(kReplacement) == std::string_view::npos;
}

/// What the token adds behind `first`, whose own text is `before`.
std::string text_behind(const Tokenizer& tokenizer, int32_t first, std::string_view before,
                        int32_t id) {
  const int32_t both[] = {first, id};
  const std::string text = tokenizer.decode(both, {});
  return text.size() >= before.size() && std::string_view(text).starts_with(before)
             ? text.substr(before.size())
             : std::string();
}

/// A token of whole characters to stand in front.
int32_t find_first(const Tokenizer& tokenizer) {
  for (const std::string_view word : {"a", "e", "0",
                                      "\xE2\x96\x81"
                                      "a"})
    if (const auto id = tokenizer.find_token(word); id && !tokenizer.is_special(*id)) return *id;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const int32_t one[] = {id}; is_whole(tokenizer.decode(one, {}))) return id;
  return -1;
}

/// Whether tokens are spelled in the alphabet of bytes: every token that decodes to whole characters says so.
bool is_byte_level(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  bool any_beyond_ascii = false;
  std::string bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string& text = texts[static_cast<size_t>(id)];
    if (!is_whole(text) || tokenizer.token_text(id) == text) continue;
    if (!from_byte_alphabet(tokenizer.token_text(id), bytes) || bytes != text) return false;
    any_beyond_ascii = true;
  }
  return any_beyond_ascii;
}

}  // namespace

std::vector<std::string> token_bytes(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.vocab_size()));
  const int32_t first = find_first(tokenizer);
  if (first < 0) return texts;
  const int32_t alone[] = {first};
  const std::string before = tokenizer.decode(alone, {});
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    texts[static_cast<size_t>(id)] = text_behind(tokenizer, first, before, id);
  const bool byte_level = is_byte_level(tokenizer, texts);
  std::string bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string& text = texts[static_cast<size_t>(id)];
    const std::string_view spelled = tokenizer.token_text(id);
    if (text.find(kReplacement) == std::string::npos || spelled == text) continue;
    const int byte = byte_of_token(spelled);
    if (byte >= 0) {
      text = std::string(1, static_cast<char>(byte));
    } else if (byte_level && from_byte_alphabet(spelled, bytes)) {
      text = bytes;
    } else if (spelled.find(kReplacement) == std::string_view::npos) {
      text.clear();
    }
  }
  return texts;
}

}  // namespace switchyard::text
