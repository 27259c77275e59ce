// SPDX-License-Identifier: Apache-2.0
// Added tokens: words that are found in the text before anything else happens to it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_fields.h"
#include "text/normalizer.h"
#include "text/prefix_index.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace switchyard::text {

struct AddedToken {
  std::string content;
  int64_t id = -1;
  bool single_word = false;  ///< only where no letter stands beside it
  bool lstrip = false;       ///< takes the white space on its left
  bool rstrip = false;       ///< and on its right
  bool normalized = false;   ///< searched in the normalized text, itself normalized
  bool special = false;      ///< may be left out of decoded text
  std::string spelled = {};  ///< as it is searched and decoded: normalized, where it asks for that
};

/// One of "added_tokens" (there with its id) or of added_tokens_decoder.
Result<AddedToken> read_added_token(const Json& json, const std::string& where);

/// A part of a text: an added token, or text between them (id -1).
struct TokenSpan {
  Span span;
  int32_t id = -1;
};

class AddedTokens {
 public:
  /// Errors: Code::bad_file for an empty or overlong content, and for an id or content that clashes
  /// with another added token or with `vocabulary`.
  static Result<AddedTokens> make(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                                  const Normalizer* normalizer);

  /// Cuts raw text at the tokens that are searched in raw text; special ones as the options say.
  std::vector<TokenSpan> split_raw(std::string_view text, const EncodeOptions& options) const {
    return split(raw_, text, options);
  }
  /// Cuts normalized text at the others. Places of the raw text are lost here, so where anything is plain, no special
  /// token is searched.
  std::vector<TokenSpan> split_normalized(std::string_view text,
                                          const EncodeOptions& options) const {
    EncodeOptions here = options;
    here.parse_special = options.parse_special && options.plain.empty();
    here.plain = {};
    return split(normalized_, text, here);
  }

  const AddedToken* find(int32_t id) const noexcept;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const noexcept { return tokens_; }

 private:
  Status add(AddedToken token, const Vocabulary& vocabulary);
  std::vector<TokenSpan> split(const PrefixIndex& index, std::string_view text,
                               const EncodeOptions& options) const;
  bool stands_alone(const AddedToken& token, std::string_view text, Span match) const;

  std::vector<AddedToken> tokens_;
  Vocabulary names_;              // content -> index in tokens_
  std::vector<int32_t> by_id_;    // index in tokens_, or -1
  PrefixIndex raw_, normalized_;  // content -> index in tokens_
};

}  // namespace switchyard::text
