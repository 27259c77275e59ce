// SPDX-License-Identifier: Apache-2.0
// libsentencepiece encodes the text between added tokens. Decoding is ours, because the library
// decodes whole texts only; it follows the library's rules for spaces, bytes and unknown tokens.
#include "text/sentencepiece_model.h"

#include <algorithm>
#include <exception>
#include <new>

#include <sentencepiece_processor.h>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/sentencepiece_proto.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kMark = "\xE2\x96\x81";       // U+2581, a space
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";  // U+2047, as the library writes it

struct Parts {
  SentencePieceProcessor library;
  SentencePieceFacts facts;
  Vocabulary vocabulary;
  AddedTokens added;
  Roles roles;
  int32_t vocab_size = 0;
};

class SentencePieceDecoding final : public Decoding {
 public:
  SentencePieceDecoding(const Parts& parts, DecodeOptions options)
      : is_(parts), options_(std::move(options)) {}

  void push(int32_t id, std::string& out) override {
    const AddedToken* added = is_.added.find(id);
    if (added == nullptr && !is_.vocabulary.contains(id)) return;
    if (added != nullptr && added->special && !options_.leaves_text(id)) return;
    const bool word = added == nullptr;
    if (word && is_.library.IsByte(id)) {
      bytes_ += static_cast<char>(byte_of_token(is_.vocabulary.text(id)));
      flush_bytes(out, false);
      return;
    }
    flush_bytes(out, true);
    if (!word) return put(added->content, out);
    if (is_.library.IsUnknown(id)) return put(kUnknown, out);
    put_word(is_.vocabulary.text(id), out);
  }
  void finish(std::string& out) override { flush_bytes(out, true); }

 private:
  void put(std::string_view text, std::string& out) {
    out += text;
    at_start_ &= text.empty();
  }

  void put_word(std::string_view piece, std::string& out) {
    const SentencePieceFacts& facts = is_.facts;
    const bool strips = facts.adds_dummy_prefix || facts.removes_extra_white_space;
    if (at_start_ && strips && piece.starts_with(kMark)) {
      piece.remove_prefix(kMark.size());
      // Where extra spaces were removed, all leading ones are, else only the dummy prefix.
      if (!facts.removes_extra_white_space) at_start_ = false;
    }
    while (!piece.empty()) {
      const bool mark = piece.starts_with(kMark);
      const size_t length = mark ? kMark.size() : character_length(piece, 0);
      put(mark ? " " : piece.substr(0, length), out);
      piece.remove_prefix(length);
    }
  }

  /// Whole characters of the run; a byte that fits nowhere becomes one U+FFFD.
  void flush_bytes(std::string& out, bool all) {
    std::string_view left = bytes_;
    while (!left.empty()) {
      size_t skip = 0;
      const size_t length = utf8_length(left, &skip);
      const auto lead = static_cast<unsigned char>(left[0]);
      const bool incomplete = length == 0 && skip == left.size() && lead >= 0xC2 && lead <= 0xF4;
      if (incomplete && !all) break;
      put(length > 0 ? left.substr(0, length) : kReplacement, out);
      left.remove_prefix(std::max<size_t>(length, 1));
    }
    bytes_ = std::string(left);
  }

  const Parts& is_;
  DecodeOptions options_;
  std::string bytes_;
  bool at_start_ = true;  // nothing was written yet
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<Parts> parts) : is_(std::move(parts)) {}

  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options) const override {
    if (const auto invalid = find_invalid_utf8(text)) {
      return fail(Code::bad_request, "the text is no UTF-8 at byte {}: send UTF-8", *invalid);
    }
    std::vector<int32_t> ids;
    const SpecialsAround& around = is_->roles.around;
    if (options.add_special_tokens) ids = around.before;
    for (const TokenSpan& part : is_->added.split_raw(text, options)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      SWITCHYARD_TRY(
          encode_words(text.substr(part.span.begin, part.span.end - part.span.begin), ids));
    }
    if (options.add_special_tokens) {
      ids.insert(ids.end(), around.after.begin(), around.after.end());
    }
    return ids;
  }

  std::unique_ptr<Decoding> start_decoding(const DecodeOptions& options) const override {
    return std::make_unique<SentencePieceDecoding>(*is_, options);
  }

  int32_t vocab_size() const override { return is_->vocab_size; }
  std::optional<int32_t> find_token(std::string_view content) const override {
    if (const AddedToken* token = is_->added.find(content)) return static_cast<int32_t>(token->id);
    return is_->vocabulary.find(content);
  }
  std::string_view token_text(int32_t id) const override {
    if (const AddedToken* token = is_->added.find(id)) return token->content;
    return is_->vocabulary.text(id);
  }
  bool is_special(int32_t id) const override {
    const AddedToken* token = is_->added.find(id);
    return token != nullptr && token->special;
  }
  std::optional<int32_t> bos_id() const override { return is_->roles.bos; }
  std::optional<int32_t> eos_id() const override { return is_->roles.eos; }

 private:
  Status encode_words(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> words;
    const auto status = is_->library.Encode(absl::string_view(text.data(), text.size()), &words);
    if (!status.ok()) return fail(Code::bad_request, "sentencepiece: {}", status.ToString());
    ids.insert(ids.end(), words.begin(), words.end());
    return {};
  }

  std::unique_ptr<Parts> is_;
};

Status load_library(std::string_view bytes, Parts& to) {
  try {
    const auto status =
        to.library.LoadFromSerializedProto(absl::string_view(bytes.data(), bytes.size()));
    if (!status.ok()) return fail(Code::bad_file, "sentencepiece: {}", status.ToString());
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "no memory for a sentencepiece model");
  } catch (const std::exception& error) {
    return fail(Code::bad_file, "sentencepiece: {}", error.what());
  }
  return {};
}

/// The pieces as a vocabulary, and control symbols as special tokens.
Status read_words(const TokenizerConfig& config, Parts& to) {
  std::vector<AddedToken> tokens;
  for (int id = 0; id < to.library.GetPieceSize(); ++id) {
    SWITCHYARD_TRY(to.vocabulary.add(to.library.IdToPiece(id), id));
    if (to.library.IsByte(id) && byte_of_token(to.library.IdToPiece(id)) < 0) {
      return fail(Code::bad_file, "the piece {} is a byte named \"{}\": expected <0xNN>", id,
                  to.library.IdToPiece(id));
    }
    if (!to.library.IsControl(id)) continue;
    AddedToken token;
    token.content = to.library.IdToPiece(id);
    token.id = id;
    token.special = true;
    tokens.push_back(std::move(token));
  }
  SWITCHYARD_TRY(merge_added_tokens(config, to.vocabulary, tokens));
  SWITCHYARD_ASSIGN(to.added, AddedTokens::make(std::move(tokens), to.vocabulary, nullptr));
  to.vocab_size = to.vocabulary.size();
  for (const AddedToken& token : to.added.all()) {
    to.vocab_size = std::max(to.vocab_size, static_cast<int32_t>(token.id) + 1);
  }
  return {};
}

Status read_roles(TokenizerConfig config, Parts& to) {
  const int bos = to.library.bos_id(), eos = to.library.eos_id();
  if (!config.bos && bos >= 0) config.bos = to.library.IdToPiece(bos);
  if (!config.eos && eos >= 0) config.eos = to.library.IdToPiece(eos);
  SpecialsAround around;
  if (bos >= 0) {
    around.before = {bos};
  } else if (eos >= 0) {
    around.after = {eos};
  }
  const auto find = [&to](std::string_view content) -> std::optional<int32_t> {
    if (const AddedToken* token = to.added.find(content)) return static_cast<int32_t>(token->id);
    return to.vocabulary.find(content);
  };
  SWITCHYARD_ASSIGN(to.roles, find_roles(config, std::move(around), find));
  return {};
}

Result<std::unique_ptr<Tokenizer>> load(std::string_view bytes, const TokenizerConfig& config) {
  auto parts = std::make_unique<Parts>();
  SWITCHYARD_ASSIGN(parts->facts, read_sentencepiece_facts(bytes));
  if (parts->facts.denormalizes) {
    return fail(Code::unsupported, "denormalizer_spec: rewriting decoded text is not supported");
  }
  SWITCHYARD_TRY(load_library(bytes, *parts));
  SWITCHYARD_TRY(read_words(config, *parts));
  SWITCHYARD_TRY(read_roles(config, *parts));
  return std::unique_ptr<Tokenizer>(std::make_unique<SentencePieceTokenizer>(std::move(parts)));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_sentencepiece_model(std::string_view bytes,
                                                            std::string_view name,
                                                            const TokenizerConfig& config) {
  auto loaded = load(bytes, config);
  if (!loaded.ok()) return with_context(std::move(loaded).error(), name);
  return loaded;
}

}  // namespace switchyard::text
