// SPDX-License-Identifier: Apache-2.0
// A character that no token covers costs ten more than the worst token; ties go to the path that
// was found first, which is the one with the longest last token.
#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/bpe.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr size_t kMaxPiece = 1024;  // bytes; keeps the time linear in the text
constexpr size_t kNone = std::numeric_limits<size_t>::max();

struct Node {
  double score = 0;      // of the best path that ends here
  size_t begin = kNone;  // of its last token
  int32_t id = -1;
};

}  // namespace

Result<std::vector<size_t>> Unigram::best_ends(std::string_view piece) const {
  std::vector<Node> nodes(piece.size() + 1);
  const auto offer = [&nodes](size_t begin, size_t end, double score, int32_t id) {
    Node& node = nodes[end];
    if (node.begin == kNone || score > node.score) node = {score, begin, id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t length = character_length(piece, at);
    const double here = nodes[at].score;
    bool covered = false;
    index_.visit_prefixes(piece.substr(at), [&](size_t bytes, int32_t id) {
      offer(at, at + bytes, here + scores_[static_cast<size_t>(id)], id);
      covered |= bytes == length;
    });
    if (!covered) {
      if (unknown_id_ < 0) {
        return fail(Code::bad_request,
                    "the character \"{}\" is not in the vocabulary, and the tokenizer has no "
                    "unk_id",
                    piece.substr(at, length));
      }
      offer(at, at + length, here + unknown_score_, unknown_id_);
    }
    at += length;
  }
  std::vector<size_t> ends;
  bool after_unknown = false;
  for (size_t end = piece.size(); end > 0; end = nodes[end].begin) {
    const bool unknown = nodes[end].id == unknown_id_;
    if (!unknown || !after_unknown) ends.push_back(end);
    after_unknown = unknown;
  }
  std::reverse(ends.begin(), ends.end());
  return ends;
}

Status Unigram::tokenize(std::string_view piece, std::vector<int32_t>& out) const {
  SWITCHYARD_ASSIGN(const std::vector<size_t> ends, best_ends(piece));
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view token = piece.substr(begin, end - begin);
    begin = end;
    if (const auto id = vocabulary_.find(token)) {
      out.push_back(*id);
      continue;
    }
    const auto id_of = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    const bool bytes = byte_fallback_ && std::all_of(token.begin(), token.end(),
                                                     [&](char c) { return id_of(c) >= 0; });
    if (!bytes) {
      out.push_back(unknown_id_);
      continue;
    }
    for (const char byte : token) out.push_back(id_of(byte));
  }
  return {};
}

Status Unigram::read_pieces(Fields& fields) {
  SWITCHYARD_ASSIGN(const Json* list, fields.require("vocab"));
  if (!list->is_array()) return fields.wrong_type("vocab", "an array", *list);
  std::vector<std::pair<std::string, int32_t>> words;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Json& item : list->as_array()) {
    const auto id = static_cast<int32_t>(scores_.size());
    const bool pair = item.is_array() && item.as_array().size() == 2 &&
                      item.as_array()[0].is_string() && item.as_array()[1].is_number();
    if (!pair) {
      return fail(Code::bad_file, "{}[{}]: expected [token, score]", fields.at("vocab"), id);
    }
    const std::string& token = item.as_array()[0].as_string();
    const double score = item.as_array()[1].as_double();
    if (token.size() > kMaxPiece || !std::isfinite(score)) {
      return fail(Code::bad_file, "{}[{}]: a token of {} bytes with score {}: expected at most {}",
                  fields.at("vocab"), id, token.size(), score, kMaxPiece);
    }
    const Status added = vocabulary_.add(token, id);
    if (!added.ok()) return with_context(added.error(), fields.at("vocab"));
    if (!token.empty()) words.emplace_back(token, id);
    scores_.push_back(score);
    lowest = std::min(lowest, score);
  }
  if (scores_.empty()) return fail(Code::bad_file, "{} is empty", fields.at("vocab"));
  unknown_score_ = lowest - kUnknownPenalty;
  index_ = PrefixIndex(std::move(words));
  return {};
}

Result<std::unique_ptr<TokenModel>> read_unigram(Fields& fields) {
  auto made = std::make_unique<Unigram>();
  SWITCHYARD_TRY(made->read_pieces(fields));
  SWITCHYARD_ASSIGN(made->byte_fallback_, fields.boolean("byte_fallback", false));
  SWITCHYARD_ASSIGN(const int64_t unknown, fields.integer("unk_id", -1));
  if (fields.find("unk_id") != nullptr &&
      (unknown < 0 || unknown >= static_cast<int64_t>(made->scores_.size()))) {
    return fail(Code::bad_file, "{}: {} is outside the vocabulary of {}", fields.at("unk_id"),
                unknown, made->scores_.size());
  }
  made->unknown_id_ = static_cast<int32_t>(unknown);
  made->byte_ids_ = find_byte_tokens(made->vocabulary_);
  SWITCHYARD_TRY(fields.finish());
  return std::unique_ptr<TokenModel>(std::move(made));
}

}  // namespace switchyard::text
