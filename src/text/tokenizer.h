// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids [T] and back, as the Hugging Face "tokenizers" library does it.
//
//   encode: added tokens -> normalizer -> pre-tokenizer -> BPE or Unigram -> special tokens around
//   decode: ids -> tokens -> a chain of decoder stages -> text, in one go or token by token
//
// tokenizer.json is followed to the letter; a part that is not known is refused by name when the
// file is opened. Reference: github.com/huggingface/tokenizers; Sennrich et al., arXiv:1508.07909
// (BPE); Kudo, arXiv:1804.10959 (Unigram).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::text {

/// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
};

struct EncodeOptions {
  bool add_special_tokens = true;  ///< BOS and EOS, where the model's files ask for them
  bool parse_special = true;       ///< special added tokens written in the text become their ids
  /// Where they do not, ascending: what users said stays plain text, yet is cut into tokens together with its
  /// surroundings.
  std::span<const ByteRange> plain = {};
};

struct DecodeOptions {
  bool skip_special_tokens = true;  ///< special tokens leave no text ...
  std::vector<int32_t> shown = {};  ///< ... but these do

  bool leaves_text(int32_t special) const {
    return !skip_special_tokens || std::find(shown.begin(), shown.end(), special) != shown.end();
  }
};

/// One running decode: tokens in, text out. The pieces, concatenated, are what decode() returns.
class Decoding {
 public:
  virtual ~Decoding() = default;
  /// Appends to `out` the text that this token makes certain: whole UTF-8 characters.
  virtual void push(int32_t id, std::string& out) = 0;
  /// Appends what was held back. No push may follow.
  virtual void finish(std::string& out) = 0;
};

/// Immutable once opened; every method may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Errors: Code::bad_request when the text is not UTF-8 or exceeds a resource limit of a pattern.
  virtual Result<std::vector<int32_t>> encode(std::string_view utf8,
                                              const EncodeOptions& options) const = 0;
  /// Always valid UTF-8. Ids that name no token leave no text.
  virtual std::string decode(std::span<const int32_t> ids, const DecodeOptions& options) const;
  /// What decode() and DecodeStream run on.
  virtual std::unique_ptr<Decoding> start_decoding(const DecodeOptions& options) const = 0;

  /// One more than the largest id.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> find_token(std::string_view content) const = 0;
  /// The token as the vocabulary spells it; empty for an id that names none.
  virtual std::string_view token_text(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
};

/// Text from tokens as they come. It gives out whole characters only and holds back what the next
/// token may still change: half a character, or a run of byte tokens.
class DecodeStream {
 public:
  explicit DecodeStream(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : decoding_(tokenizer.start_decoding(options)) {}

  std::string push(int32_t id);
  std::string finish();

 private:
  std::unique_ptr<Decoding> decoding_;
};

/// Opens the tokenizer of a model folder: tokenizer.json, else a sentencepiece model.
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json add to it: add_bos_token
/// and add_eos_token override the post-processor, and tokens that only they name are added.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& model_folder);

}  // namespace switchyard::text
