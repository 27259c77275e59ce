// SPDX-License-Identifier: Apache-2.0
// The longest token at the leftmost place wins; only then are its flags looked at, so that a token
// that must stand alone hides a shorter one, as in the reference.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace switchyard::text {
namespace {

constexpr size_t kMaxContent = 4096;  // bytes; keeps the search linear in the text

size_t skip_white_space_left(std::string_view text, size_t end) {
  while (end > 0) {
    size_t before = end;
    if (!is_white_space(previous_character(text, before))) break;
    end = before;
  }
  return end;
}

size_t skip_white_space_right(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!is_white_space(next_character(text, next))) break;
    begin = next;
  }
  return begin;
}

/// Whether any of the ascending ranges shares a byte with the match.
bool touches(std::span<const ByteRange> ranges, Span match) {
  const auto range = std::partition_point(
      ranges.begin(), ranges.end(), [&](const ByteRange& one) { return one.end <= match.begin; });
  return range != ranges.end() && range->begin < match.end;
}

}  // namespace

Result<AddedToken> read_added_token(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  AddedToken token;
  SWITCHYARD_ASSIGN(token.content, fields.string("content"));
  SWITCHYARD_ASSIGN(token.id, fields.integer("id", -1));
  SWITCHYARD_ASSIGN(token.single_word, fields.boolean("single_word", false));
  SWITCHYARD_ASSIGN(token.lstrip, fields.boolean("lstrip", false));
  SWITCHYARD_ASSIGN(token.rstrip, fields.boolean("rstrip", false));
  SWITCHYARD_ASSIGN(token.special, fields.boolean("special", false));
  SWITCHYARD_ASSIGN(token.normalized, fields.boolean("normalized", !token.special));
  fields.ignore({"__type"});
  SWITCHYARD_TRY(fields.finish());
  return token;
}

Status AddedTokens::add(AddedToken token, const Vocabulary& vocabulary) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::bad_file, "the added token \"{}\" with id {}: {}", token.content, token.id,
                why);
  };
  if (token.content.empty()) return refuse("its content is empty");
  if (token.content.size() > kMaxContent) {
    return refuse(fmt::format("{} bytes: expected at most {}", token.content.size(), kMaxContent));
  }
  if (token.id < 0 || token.id > kMaxTokenId) {
    return refuse(fmt::format("expected an id from 0 to {}", kMaxTokenId));
  }
  const auto id = static_cast<int32_t>(token.id);
  const auto known = vocabulary.find(token.content);
  if (known && *known != id) {
    return refuse(fmt::format("the vocabulary gives this content the id {}", *known));
  }
  if (vocabulary.contains(id) && vocabulary.text(id) != token.content) {
    return refuse(fmt::format("the vocabulary gives this id to \"{}\"", vocabulary.text(id)));
  }
  if (find(id) != nullptr) {
    return refuse(fmt::format("the id is also that of \"{}\"", find(id)->content));
  }
  const Status added = names_.add(token.content, static_cast<int64_t>(tokens_.size()));
  if (!added.ok()) return refuse("the content is given twice");
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1, -1);
  by_id_[static_cast<size_t>(id)] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
  return {};
}

Result<AddedTokens> AddedTokens::make(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
                                      const Normalizer* normalizer) {
  AddedTokens made;
  std::vector<std::pair<std::string, int32_t>> raw, normalized;
  for (AddedToken& token : tokens) SWITCHYARD_TRY(made.add(std::move(token), vocabulary));
  for (size_t i = 0; i < made.tokens_.size(); ++i) {
    AddedToken& token = made.tokens_[i];
    Piece piece{token.content, false};
    if (token.normalized && normalizer != nullptr) SWITCHYARD_TRY(normalizer->apply(piece));
    token.spelled = std::move(piece.text);
    if (token.spelled.empty()) continue;  // nothing is left of it to be found
    (token.normalized ? normalized : raw).emplace_back(token.spelled, static_cast<int32_t>(i));
  }
  made.raw_ = PrefixIndex(std::move(raw));
  made.normalized_ = PrefixIndex(std::move(normalized));
  return made;
}

bool AddedTokens::stands_alone(const AddedToken& token, std::string_view text, Span match) const {
  if (!token.single_word) return true;
  size_t before = match.begin, after = match.end;
  if (match.begin > 0 && is_word(previous_character(text, before))) return false;
  return match.end == text.size() || !is_word(next_character(text, after));
}

std::vector<TokenSpan> AddedTokens::split(const PrefixIndex& index, std::string_view text,
                                          const EncodeOptions& options) const {
  std::vector<TokenSpan> out;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    int32_t found = -1;
    if (index.may_begin(text[at])) {
      index.visit_prefixes(text.substr(at), [&](size_t bytes, int32_t value) {
        length = bytes;
        found = value;
      });
    }
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    Span match{at, at + length};
    if (token.special && touches(options.plain, match)) {
      ++at;  // a token of the template may begin inside
      continue;
    }
    at = match.end;
    if ((token.special && !options.parse_special) || !stands_alone(token, text, match)) continue;
    if (token.lstrip) match.begin = std::max(skip_white_space_left(text, match.begin), done);
    if (token.rstrip) match.end = skip_white_space_right(text, match.end);
    if (done < match.begin) out.push_back({{done, match.begin}, -1});
    out.push_back({match, static_cast<int32_t>(token.id)});
    done = match.end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, -1});
  return out;
}

const AddedToken* AddedTokens::find(int32_t id) const noexcept {
  if (id < 0 || static_cast<size_t>(id) >= by_id_.size()) return nullptr;
  const int32_t index = by_id_[static_cast<size_t>(id)];
  return index < 0 ? nullptr : &tokens_[static_cast<size_t>(index)];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto index = names_.find(content);
  return index ? &tokens_[static_cast<size_t>(*index)] : nullptr;
}

}  // namespace switchyard::text
