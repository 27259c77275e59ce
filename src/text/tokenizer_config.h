// SPDX-License-Identifier: Apache-2.0
// TokenizerConfig: what stands beside the tokenizer's own file: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json.
//
// clean_up_tokenization_spaces is left alone on purpose: it makes decoded text lossy, and servers do
// not apply it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/post_processor.h"

namespace switchyard::text {

struct TokenizerConfig {
  std::optional<bool> add_bos, add_eos;    ///< given, they override the post-processor
  std::optional<std::string> bos, eos;     ///< texts
  std::vector<AddedToken> tokens;          ///< added_tokens_decoder, or else added_tokens.json
  std::vector<std::string> special_names;  ///< all tokens with a role, such as pad_token
};

/// Reads the files that exist; none must.
Result<TokenizerConfig> read_tokenizer_config(const std::string& folder);

/// The same from texts; an empty text is a file that does not exist.
struct TokenizerConfigTexts {
  std::string config, special_map, added_tokens;
};
Result<TokenizerConfig> parse_tokenizer_config(const TokenizerConfigTexts& texts);

/// Adds the tokens that only `config` names to the list of a tokenizer file. Errors:
/// Code::bad_file when both give one content different ids.
Status merge_added_tokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                          std::vector<AddedToken>& tokens);

/// The ids of BOS and EOS, and the tokens around a text.
struct Roles {
  std::optional<int32_t> bos, eos;
  SpecialsAround around;
};

/// `find` gives the id of a content. Errors: Code::bad_file when BOS or EOS is to be added but has
/// no id.
template <class Find>
Result<Roles> find_roles(const TokenizerConfig& config, SpecialsAround around, Find&& find) {
  Roles roles;
  if (config.bos) roles.bos = find(*config.bos);
  if (config.eos) roles.eos = find(*config.eos);
  roles.around = std::move(around);
  const auto put = [](std::optional<bool> wanted, std::optional<int32_t> id, std::string_view name,
                      std::vector<int32_t>& side) -> Status {
    if (!wanted) return {};
    side.clear();
    if (!*wanted) return {};
    if (!id) {
      return fail(Code::bad_file,
                  "tokenizer_config.json: add_{0}_token is true, but no {0}_token of the "
                  "vocabulary is named",
                  name);
    }
    side.push_back(*id);
    return {};
  };
  SWITCHYARD_TRY(put(config.add_bos, roles.bos, "bos", roles.around.before));
  SWITCHYARD_TRY(put(config.add_eos, roles.eos, "eos", roles.around.after));
  return roles;
}

}  // namespace switchyard::text
