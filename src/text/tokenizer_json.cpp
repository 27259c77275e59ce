// SPDX-License-Identifier: Apache-2.0
// The pipeline, put together as the file says. "truncation" and "padding" are settings of a training
// script that was saved along; nothing here applies them.
#include "text/tokenizer_json.h"

#include <algorithm>

#include "text/decoder.h"
#include "text/json_fields.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

struct Pipeline {
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  AddedTokens added;
  Decoder decoder;
  Roles roles;
  int32_t vocab_size = 0;
};

/// Collects the text at the end of the chain.
class Sink final : public DecodeStep {
 public:
  Sink() { text.reserve(256); }  // more than any usual token: pushing one does not allocate
  void push(std::string_view token) override { text += token; }
  void finish() override {}
  std::string text;
};

class JsonDecoding final : public Decoding {
 public:
  JsonDecoding(const Pipeline& pipeline, DecodeOptions options)
      : is_(pipeline), options_(std::move(options)), steps_(pipeline.decoder.start(sink_)) {}

  void push(int32_t id, std::string& out) override {
    const AddedToken* added = is_.added.find(id);
    if (added != nullptr && added->special && !options_.leaves_text(id)) return;
    if (added == nullptr && !is_.model->vocabulary().contains(id)) return;
    // Like the reference, an added token that is searched normalized is also written so.
    first().push(added != nullptr ? added->spelled : is_.model->vocabulary().text(id));
    hand_over(out);
  }
  void finish(std::string& out) override {
    first().finish();
    hand_over(out);
  }

 private:
  DecodeStep& first() { return steps_.empty() ? sink_ : *steps_.front(); }
  void hand_over(std::string& out) {
    out += sink_.text;
    sink_.text.clear();
  }

  const Pipeline& is_;
  DecodeOptions options_;
  Sink sink_;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

class JsonTokenizer final : public Tokenizer {
 public:
  explicit JsonTokenizer(Pipeline pipeline) : is_(std::move(pipeline)) {}

  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options) const override {
    if (const auto invalid = find_invalid_utf8(text)) {
      return fail(Code::bad_request, "the text is no UTF-8 at byte {}: send UTF-8", *invalid);
    }
    std::vector<int32_t> ids;
    const SpecialsAround& around = is_.roles.around;
    if (options.add_special_tokens) ids = around.before;
    for (const TokenSpan& part : is_.added.split_raw(text, options)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      const std::string_view words = text.substr(part.span.begin, part.span.end - part.span.begin);
      SWITCHYARD_TRY(encode_raw(words, part.span.begin == 0, options, ids));
    }
    if (options.add_special_tokens) {
      ids.insert(ids.end(), around.after.begin(), around.after.end());
    }
    return ids;
  }

  std::unique_ptr<Decoding> start_decoding(const DecodeOptions& options) const override {
    return std::make_unique<JsonDecoding>(is_, options);
  }

  int32_t vocab_size() const override { return is_.vocab_size; }
  std::optional<int32_t> find_token(std::string_view content) const override {
    if (const AddedToken* token = is_.added.find(content)) return static_cast<int32_t>(token->id);
    return is_.model->vocabulary().find(content);
  }
  std::string_view token_text(int32_t id) const override {
    if (const AddedToken* token = is_.added.find(id)) return token->content;
    return is_.model->vocabulary().text(id);
  }
  bool is_special(int32_t id) const override {
    const AddedToken* token = is_.added.find(id);
    return token != nullptr && token->special;
  }
  std::optional<int32_t> bos_id() const override { return is_.roles.bos; }
  std::optional<int32_t> eos_id() const override { return is_.roles.eos; }

 private:
  /// Text between raw added tokens: normalizes it and cuts it at the normalized ones.
  Status encode_raw(std::string_view text, bool at_start, const EncodeOptions& options,
                    std::vector<int32_t>& ids) const {
    Piece whole{std::string(text), at_start};
    if (is_.normalizer) SWITCHYARD_TRY(is_.normalizer->apply(whole));
    for (const TokenSpan& part : is_.added.split_normalized(whole.text, options)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      Piece piece{whole.text.substr(part.span.begin, part.span.end - part.span.begin),
                  whole.at_start && part.span.begin == 0};
      SWITCHYARD_TRY(encode_words(std::move(piece), ids));
    }
    return {};
  }

  Status encode_words(Piece text, std::vector<int32_t>& ids) const {
    std::vector<Piece> pieces;
    pieces.push_back(std::move(text));
    if (is_.pre_tokenizer) SWITCHYARD_TRY(is_.pre_tokenizer->apply(pieces));
    for (const Piece& piece : pieces) SWITCHYARD_TRY(is_.model->tokenize(piece.text, ids));
    return {};
  }

  Pipeline is_;
};

Result<std::vector<AddedToken>> read_added_list(Fields& fields) {
  std::vector<AddedToken> tokens;
  const Json* list = fields.find("added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) return fields.wrong_type("added_tokens", "an array", *list);
  for (const Json& item : list->as_array()) {
    const std::string where = fmt::format("{}[{}]", fields.at("added_tokens"), tokens.size());
    SWITCHYARD_ASSIGN(AddedToken token, read_added_token(item, where));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Status read_parts(Fields& fields, Pipeline& to) {
  SWITCHYARD_ASSIGN(const Json* model, fields.require("model"));
  SWITCHYARD_ASSIGN(to.model, make_token_model(*model, fields.at("model")));
  if (const Json* json = fields.find("normalizer")) {
    SWITCHYARD_ASSIGN(to.normalizer, make_normalizer(*json, fields.at("normalizer")));
  }
  if (const Json* json = fields.find("pre_tokenizer")) {
    SWITCHYARD_ASSIGN(to.pre_tokenizer, make_pre_tokenizer(*json, fields.at("pre_tokenizer")));
  }
  SWITCHYARD_ASSIGN(to.decoder, Decoder::make(fields.find("decoder"), fields.at("decoder")));
  return {};
}

/// Ids that name nothing are counted over words and added tokens together.
Result<int32_t> count_ids(const Pipeline& pipeline) {
  const Vocabulary& words = pipeline.model->vocabulary();
  int32_t size = words.size(), named = words.count();
  for (const AddedToken& token : pipeline.added.all()) {
    const auto id = static_cast<int32_t>(token.id);
    size = std::max(size, id + 1);
    if (!words.contains(id)) ++named;
  }
  if (size - named <= kMaxHoles) return size;
  return fail(Code::bad_file, "{} of {} ids name no token: expected at most {}", size - named, size,
              kMaxHoles);
}

Result<Pipeline> read_pipeline(const Json& json, std::string_view name,
                               const TokenizerConfig& config) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, std::string(name)));
  SWITCHYARD_ASSIGN(const std::string version, fields.string("version", "1.0"));
  if (version != "1.0") {
    return fail(Code::unsupported, "{}: expected \"1.0\", found \"{}\"", fields.at("version"),
                version);
  }
  Pipeline made;
  SWITCHYARD_TRY(read_parts(fields, made));
  SWITCHYARD_ASSIGN(std::vector<AddedToken> tokens, read_added_list(fields));
  SWITCHYARD_TRY(merge_added_tokens(config, made.model->vocabulary(), tokens));
  auto added =
      AddedTokens::make(std::move(tokens), made.model->vocabulary(), made.normalizer.get());
  if (!added.ok()) return with_context(std::move(added).error(), name);
  made.added = *std::move(added);
  auto count = count_ids(made);
  if (!count.ok()) return with_context(std::move(count).error(), name);
  made.vocab_size = *count;
  SWITCHYARD_ASSIGN(SpecialsAround around, read_post_processor(fields.find("post_processor"),
                                                               fields.at("post_processor")));
  const auto find = [&made](std::string_view content) -> std::optional<int32_t> {
    if (const AddedToken* token = made.added.find(content)) return static_cast<int32_t>(token->id);
    return made.model->vocabulary().find(content);
  };
  SWITCHYARD_ASSIGN(made.roles, find_roles(config, std::move(around), find));
  fields.ignore({"truncation", "padding"});
  SWITCHYARD_TRY(fields.finish());
  return made;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view json, std::string_view name,
                                                       const TokenizerConfig& config) {
  SWITCHYARD_ASSIGN(const Json parsed, parse_json(json, name));
  SWITCHYARD_ASSIGN(Pipeline pipeline, read_pipeline(parsed, name, config));
  return std::unique_ptr<Tokenizer>(std::make_unique<JsonTokenizer>(std::move(pipeline)));
}

}  // namespace switchyard::text
