// SPDX-License-Identifier: Apache-2.0
// These files hold many members that concern other programs; here only those that change ids are
// read, so unknown members are no error.
#include "text/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/files.h"

namespace switchyard::text {
namespace {

constexpr uint64_t kMaxFile = uint64_t{64} << 20;
constexpr std::array<std::string_view, 7> kRoles = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// A token with a role is its text, or an object with the text as "content".
const std::string* content_of(const Json* json) {
  if (json == nullptr) return nullptr;
  if (json->is_object()) json = json->find("content");
  return json != nullptr && json->is_string() && !json->as_string().empty() ? &json->as_string()
                                                                            : nullptr;
}

void add_name(TokenizerConfig& config, const std::string* name) {
  auto& names = config.special_names;
  if (name == nullptr || std::find(names.begin(), names.end(), *name) != names.end()) return;
  names.push_back(*name);
}

/// The same members in tokenizer_config.json and in special_tokens_map.json; the first file wins.
void read_roles(const Json& json, TokenizerConfig& config) {
  for (const std::string_view role : kRoles) add_name(config, content_of(json.find(role)));
  const std::string* bos = content_of(json.find("bos_token"));
  const std::string* eos = content_of(json.find("eos_token"));
  if (!config.bos && bos != nullptr) config.bos = *bos;
  if (!config.eos && eos != nullptr) config.eos = *eos;
  const Json* more = json.find("additional_special_tokens");
  if (more == nullptr || !more->is_array()) return;
  for (const Json& item : more->as_array()) add_name(config, content_of(&item));
}

Result<std::optional<bool>> read_flag(const Json& json, std::string_view name) {
  const Json* member = json.find(name);
  if (member == nullptr || member->is_null()) return std::optional<bool>();
  if (!member->is_bool()) {
    return fail(Code::bad_file, "tokenizer_config.json: {}: expected true or false, found {}", name,
                member->kind_name());
  }
  return std::optional<bool>(member->as_bool());
}

Status read_decoder(const Json& json, TokenizerConfig& config) {
  if (!json.is_object()) {
    return fail(Code::bad_file,
                "tokenizer_config.json: added_tokens_decoder: expected an object, found {}",
                json.kind_name());
  }
  for (const auto& [key, value] : json.as_object()) {
    const std::string where =
        fmt::format("tokenizer_config.json: added_tokens_decoder[\"{}\"]", key);
    SWITCHYARD_ASSIGN(AddedToken token, read_added_token(value, where));
    const char* end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, token.id);
    if (error != std::errc() || stop != end) {
      return fail(Code::bad_file, "{}: the name is no id", where);
    }
    config.tokens.push_back(std::move(token));
  }
  return {};
}

/// {content: id}, as versions before 4.34 of the transformers library wrote it.
Status read_added(const Json& json, TokenizerConfig& config) {
  if (!json.is_object()) {
    return fail(Code::bad_file, "added_tokens.json: expected an object, found {}",
                json.kind_name());
  }
  for (const auto& [content, id] : json.as_object()) {
    if (!id.is_integer()) {
      return fail(Code::bad_file, "added_tokens.json: \"{}\": expected an id, found {}", content,
                  id.kind_name());
    }
    AddedToken token;
    token.content = content;
    token.id = id.as_int();
    const auto& names = config.special_names;
    token.special = std::find(names.begin(), names.end(), content) != names.end();
    token.normalized = !token.special;
    config.tokens.push_back(std::move(token));
  }
  return {};
}

Result<std::string> read_if_there(const std::string& path) {
  if (!file_exists(path)) return std::string();
  return read_text_file(path, kMaxFile);
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(const TokenizerConfigTexts& texts) {
  TokenizerConfig config;
  const Json* decoder = nullptr;
  Json json;
  if (!texts.config.empty()) {
    SWITCHYARD_ASSIGN(json, parse_json(texts.config, "tokenizer_config.json"));
    SWITCHYARD_ASSIGN(config.add_bos, read_flag(json, "add_bos_token"));
    SWITCHYARD_ASSIGN(config.add_eos, read_flag(json, "add_eos_token"));
    read_roles(json, config);
    decoder = json.find("added_tokens_decoder");
  }
  if (!texts.special_map.empty()) {
    SWITCHYARD_ASSIGN(const Json map, parse_json(texts.special_map, "special_tokens_map.json"));
    read_roles(map, config);
  }
  if (decoder != nullptr && !decoder->is_null()) {
    SWITCHYARD_TRY(read_decoder(*decoder, config));
  } else if (!texts.added_tokens.empty()) {
    SWITCHYARD_ASSIGN(const Json added, parse_json(texts.added_tokens, "added_tokens.json"));
    SWITCHYARD_TRY(read_added(added, config));
  }
  return config;
}

Result<TokenizerConfig> read_tokenizer_config(const std::string& folder) {
  TokenizerConfigTexts texts;
  SWITCHYARD_ASSIGN(texts.config, read_if_there(folder + "/tokenizer_config.json"));
  SWITCHYARD_ASSIGN(texts.special_map, read_if_there(folder + "/special_tokens_map.json"));
  SWITCHYARD_ASSIGN(texts.added_tokens, read_if_there(folder + "/added_tokens.json"));
  return parse_tokenizer_config(texts);
}

Status merge_added_tokens(const TokenizerConfig& config, const Vocabulary& vocabulary,
                          std::vector<AddedToken>& tokens) {
  std::unordered_map<std::string, int64_t, SeededHash, std::equal_to<>> known;
  for (const AddedToken& token : tokens) known.emplace(token.content, token.id);
  for (const AddedToken& token : config.tokens) {
    const auto [place, fresh] = known.emplace(token.content, token.id);
    if (fresh) {
      tokens.push_back(token);
    } else if (place->second != token.id) {
      return fail(Code::bad_file,
                  "tokenizer_config.json: the added token \"{}\" has the id {}, but another file "
                  "says {}",
                  token.content, token.id, place->second);
    }
  }
  // A token with a role that so far is only a word of the vocabulary is a special token.
  for (const std::string& name : config.special_names) {
    const auto id = vocabulary.find(name);
    if (!id || !known.emplace(name, *id).second) continue;
    AddedToken token;
    token.content = name;
    token.id = *id;
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return {};
}

}  // namespace switchyard::text
