// SPDX-License-Identifier: Apache-2.0
// A piece is a linked list of tokens in one array; a heap holds the merges that are possible.
// Entries of the heap whose tokens have changed since are recognised when they come up.
#include "text/bpe.h"

#include <algorithm>
#include <queue>

#include "text/unicode.h"

namespace switchyard::text {
namespace {

/// A possible merge; the lowest rank comes first, then the leftmost.
struct Candidate {
  int32_t rank;
  int32_t at;
  int32_t id;
  bool operator<(const Candidate& other) const noexcept {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

/// The tokens of a piece: next and previous are indices, -1 at the ends; a dead token has id -1.
struct Bpe::Word {
  struct Token {
    int32_t id, previous, next;
  };
  std::vector<Token> tokens;

  explicit Word(const std::vector<int32_t>& ids) {
    const auto count = static_cast<int32_t>(ids.size());
    tokens.reserve(ids.size());
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    }
  }
  Token& operator[](int32_t i) { return tokens[static_cast<size_t>(i)]; }
};

size_t Bpe::PairHash::operator()(uint64_t pair) const noexcept {
  const std::string_view bytes(reinterpret_cast<const char*>(&pair), sizeof(pair));
  return SeededHash()(bytes);
}

std::vector<int32_t> find_byte_tokens(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids(256);
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  return ids;
}

Result<std::unique_ptr<Bpe>> Bpe::make(Vocabulary vocabulary, const std::vector<Merge>& merges,
                                       BpeOptions options) {
  auto bpe = std::make_unique<Bpe>();
  bpe->vocabulary_ = std::move(vocabulary);
  bpe->options_ = std::move(options);
  if (!bpe->options_.unknown.empty()) {
    const auto id = bpe->vocabulary_.find(bpe->options_.unknown);
    if (!id) {
      return fail(Code::bad_file, "unk_token \"{}\" is not in the vocabulary",
                  bpe->options_.unknown);
    }
    bpe->unknown_id_ = *id;
  }
  bpe->byte_ids_ = find_byte_tokens(bpe->vocabulary_);
  bpe->rules_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    SWITCHYARD_TRY(bpe->add_merge(merges[rank], rank));
  }
  return bpe;
}

Status Bpe::add_merge(const Merge& merge, size_t rank) {
  const std::string& left = merge.first;
  const std::string& right = merge.second;
  const auto refuse = [&](std::string_view why) {
    return fail(Code::bad_file, "merges[{}] (\"{}\" and \"{}\"): {}", rank, left, right, why);
  };
  const auto left_id = vocabulary_.find(left), right_id = vocabulary_.find(right);
  if (!left_id) return refuse("the left side is not in the vocabulary");
  if (!right_id) return refuse("the right side is not in the vocabulary");
  if (right.size() < options_.prefix.size()) {
    return refuse(fmt::format("the right side is shorter than the continuing_subword_prefix \"{}\"",
                              options_.prefix));
  }
  const auto id = vocabulary_.find(left + right.substr(options_.prefix.size()));
  if (!id) return refuse("the result is not in the vocabulary");
  rules_.insert_or_assign(pair_of(*left_id, *right_id), Rule{static_cast<int32_t>(rank), *id});
  return {};
}

bool Bpe::append_bytes(std::string_view character, std::vector<int32_t>& out) const {
  const auto id_of = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
    return false;
  }
  for (const char byte : character) out.push_back(id_of(byte));
  return true;
}

std::vector<int32_t> Bpe::first_tokens(std::string_view piece) const {
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  bool pending = false;  // an unknown that may still swallow its neighbour
  std::string spelled;
  for (size_t at = 0; at < piece.size();) {
    const size_t length = character_length(piece, at);
    std::string_view character = piece.substr(at, length);
    const bool first = at == 0, last = at + length == piece.size();
    at += length;
    if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
      spelled = fmt::format("{}{}{}", first ? "" : options_.prefix, character,
                            last ? options_.suffix : "");
      character = spelled;
    }
    if (const auto id = vocabulary_.find(character)) {
      if (pending) ids.push_back(unknown_id_);
      pending = false;
      ids.push_back(*id);
      continue;
    }
    // The reference leaves an unknown pending over byte tokens, and so do we.
    if (options_.byte_fallback && append_bytes(character, ids)) continue;
    if (unknown_id_ < 0) continue;
    if (pending && !options_.fuse_unknown) ids.push_back(unknown_id_);
    pending = true;
  }
  if (pending) ids.push_back(unknown_id_);
  return ids;
}

void Bpe::merge_all(Word& word) const {
  std::vector<Candidate> found;
  const auto rule_at = [&](int32_t at) -> const Rule* {
    const int32_t next = at < 0 ? -1 : word[at].next;
    if (next < 0) return nullptr;
    const auto rule = rules_.find(pair_of(word[at].id, word[next].id));
    return rule == rules_.end() ? nullptr : &rule->second;
  };
  for (int32_t at = 0; at < static_cast<int32_t>(word.tokens.size()); ++at) {
    if (const Rule* rule = rule_at(at)) found.push_back({rule->rank, at, rule->id});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(found));
  const auto consider = [&](int32_t at) {
    if (const Rule* rule = rule_at(at)) queue.push({rule->rank, at, rule->id});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    if (word[best.at].id < 0) continue;
    const Rule* rule = rule_at(best.at);
    if (rule == nullptr || rule->id != best.id) continue;  // its tokens have changed
    const int32_t gone = word[best.at].next;
    word[best.at].id = best.id;
    word[best.at].next = word[gone].next;
    if (word[gone].next >= 0) word[word[gone].next].previous = best.at;
    word[gone].id = -1;
    consider(word[best.at].previous);
    consider(best.at);
  }
}

Status Bpe::tokenize(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return {};
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(piece)) {
      out.push_back(*id);
      return {};
    }
  }
  if (piece.size() > size_t{INT32_MAX}) {
    return fail(Code::bad_request, "a piece of {} bytes is too long for the tokenizer",
                piece.size());
  }
  Word word(first_tokens(piece));
  merge_all(word);
  for (const Word::Token& token : word.tokens) {
    if (token.id >= 0) out.push_back(token.id);
  }
  return {};
}

}  // namespace switchyard::text
