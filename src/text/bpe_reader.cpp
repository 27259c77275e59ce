// SPDX-License-Identifier: Apache-2.0
// BPE from JSON: the vocabulary is {token: id}, merges are "a b" or ["a", "b"].
#include <limits>

#include "text/bpe.h"

namespace switchyard::text {
namespace {

Result<Vocabulary> read_vocabulary(Fields& fields) {
  SWITCHYARD_ASSIGN(const Json* json, fields.require("vocab"));
  if (!json->is_object()) return fields.wrong_type("vocab", "an object", *json);
  Vocabulary vocabulary;
  for (const auto& [token, id] : json->as_object()) {
    if (!id.is_integer()) {
      return fail(Code::bad_file, "{}[\"{}\"]: expected an id from 0 to {}, found {}",
                  fields.at("vocab"), token, kMaxTokenId,
                  id.is_number() ? "a number outside" : id.kind_name());
    }
    const Status added = vocabulary.add(token, id.as_int());
    if (!added.ok()) return with_context(added.error(), fields.at("vocab"));
  }
  return vocabulary;
}

Result<Bpe::Merge> read_merge(const Json& json, const std::string& where) {
  if (json.is_string()) {
    const std::string& text = json.as_string();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return fail(Code::bad_file, "{}: expected two tokens and one space, found \"{}\"", where,
                  text);
    }
    return Bpe::Merge(text.substr(0, space), text.substr(space + 1));
  }
  const bool pair = json.is_array() && json.as_array().size() == 2 &&
                    json.as_array()[0].is_string() && json.as_array()[1].is_string();
  if (!pair) return fail(Code::bad_file, "{}: expected \"a b\" or [\"a\", \"b\"]", where);
  return Bpe::Merge(json.as_array()[0].as_string(), json.as_array()[1].as_string());
}

Result<std::vector<Bpe::Merge>> read_merges(Fields& fields) {
  SWITCHYARD_ASSIGN(const Json* json, fields.require("merges"));
  if (!json->is_array()) return fields.wrong_type("merges", "an array", *json);
  std::vector<Bpe::Merge> merges;
  merges.reserve(json->as_array().size());
  size_t line = 0;
  for (const Json& item : json->as_array()) {
    const std::string where = fmt::format("{}[{}]", fields.at("merges"), line++);
    // Lists made from a merges.txt may begin with its heading.
    if (item.is_string() && item.as_string().starts_with("#version")) continue;
    SWITCHYARD_ASSIGN(Bpe::Merge merge, read_merge(item, where));
    merges.push_back(std::move(merge));
  }
  return merges;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> read_bpe(Fields& fields) {
  BpeOptions options;
  SWITCHYARD_ASSIGN(options.unknown, fields.string("unk_token", ""));
  SWITCHYARD_ASSIGN(options.prefix, fields.string("continuing_subword_prefix", ""));
  SWITCHYARD_ASSIGN(options.suffix, fields.string("end_of_word_suffix", ""));
  SWITCHYARD_ASSIGN(options.fuse_unknown, fields.boolean("fuse_unk", false));
  SWITCHYARD_ASSIGN(options.byte_fallback, fields.boolean("byte_fallback", false));
  SWITCHYARD_ASSIGN(options.ignore_merges, fields.boolean("ignore_merges", false));
  const Json* dropout = fields.find("dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->as_double() == 0.0)) {
    return fail(Code::unsupported, "{}: random merges are not supported: set it to null",
                fields.at("dropout"));
  }
  SWITCHYARD_ASSIGN(Vocabulary vocabulary, read_vocabulary(fields));
  SWITCHYARD_ASSIGN(const std::vector<Bpe::Merge> merges, read_merges(fields));
  SWITCHYARD_TRY(fields.finish());
  auto made = Bpe::make(std::move(vocabulary), merges, std::move(options));
  if (!made.ok()) return with_context(std::move(made).error(), fields.where());
  return std::unique_ptr<TokenModel>(*std::move(made));
}

}  // namespace switchyard::text
