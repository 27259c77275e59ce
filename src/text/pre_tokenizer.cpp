// SPDX-License-Identifier: Apache-2.0
// One class for each kind, and the table of their names at the end.
#include "text/pre_tokenizer.h"

#include <array>
#include <optional>

#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/metaspace.h"
#include "text/pattern.h"
#include "text/split.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

using Made = Result<std::unique_ptr<PreTokenizer>>;

/// Appends the parts of `piece`, without the empty ones.
void append_parts(std::vector<Piece>& out, Piece piece, const std::vector<Span>& spans) {
  if (spans.size() == 1 && spans[0].begin == 0 && spans[0].end == piece.text.size()) {
    if (!piece.text.empty()) out.push_back(std::move(piece));
    return;
  }
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    out.push_back(
        {piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
  }
}

/// A match for each single character of a class.
template <class Predicate>
std::vector<Span> find_characters(std::string_view text, Predicate&& belongs) {
  std::vector<Span> matches;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (belongs(next_character(text, at))) matches.push_back({begin, at});
  }
  return matches;
}

Result<SplitBehavior> read_behavior(Fields& fields, std::optional<std::string_view> otherwise) {
  SWITCHYARD_ASSIGN(const std::string name,
                    otherwise ? fields.string("behavior", *otherwise) : fields.string("behavior"));
  const std::optional<SplitBehavior> behavior = find_split_behavior(name);
  if (behavior) return *behavior;
  return fail(Code::unsupported, "{}: \"{}\" is not known", fields.at("behavior"), name);
}

class Split final : public PreTokenizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Split>();
    SWITCHYARD_ASSIGN(const Json* pattern, fields.require("pattern"));
    SWITCHYARD_ASSIGN(made->pattern_, Pattern::read(*pattern, fields.at("pattern")));
    SWITCHYARD_ASSIGN(made->behavior_, read_behavior(fields, std::nullopt));
    SWITCHYARD_ASSIGN(made->invert_, fields.boolean("invert", false));
    return Made(std::move(made));
  }
  Status apply(std::vector<Piece>& pieces) const override {
    std::vector<Piece> out;
    for (Piece& piece : pieces) {
      SWITCHYARD_ASSIGN(const std::vector<Span> matches, pattern_.find_all(piece.text));
      const std::vector<Span> spans = split(piece.text.size(), matches, behavior_, invert_);
      append_parts(out, std::move(piece), spans);
    }
    pieces = std::move(out);
    return {};
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_ = SplitBehavior::isolated;
  bool invert_ = false;
};

class ByteLevel final : public PreTokenizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<ByteLevel>();
    SWITCHYARD_ASSIGN(made->add_prefix_space_, fields.boolean("add_prefix_space", true));
    SWITCHYARD_ASSIGN(const bool use_regex, fields.boolean("use_regex", true));
    fields.ignore({"trim_offsets"});
    if (use_regex) {
      SWITCHYARD_ASSIGN(made->words_, Regex::compile(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|)"
                                                     R"( ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"));
    }
    return Made(std::move(made));
  }
  Status apply(std::vector<Piece>& pieces) const override {
    std::vector<Piece> out;
    for (Piece& piece : pieces) {
      if (add_prefix_space_ && !piece.text.starts_with(' ')) piece.text.insert(0, 1, ' ');
      if (!words_) {
        out.push_back(std::move(piece));
        continue;
      }
      SWITCHYARD_ASSIGN(const std::vector<Span> matches, words_->find_all(piece.text));
      const auto spans = split(piece.text.size(), matches, SplitBehavior::isolated);
      append_parts(out, std::move(piece), spans);
    }
    for (Piece& piece : out) piece.text = to_byte_alphabet(piece.text);
    pieces = std::move(out);
    return {};
  }

 private:
  bool add_prefix_space_ = true;
  std::optional<Regex> words_;
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<MetaspaceSplit>();
    SWITCHYARD_ASSIGN(made->options_, Metaspace::read(fields));
    return Made(std::move(made));
  }
  Status apply(std::vector<Piece>& pieces) const override {
    std::vector<Piece> out;
    for (Piece& piece : pieces) {
      options_.mark_spaces(piece.text, piece.at_start);
      if (!options_.split) {
        out.push_back(std::move(piece));
        continue;
      }
      const auto is_mark = [this](char32_t c) { return c == options_.mark; };
      const std::vector<Span> spans = split(piece.text.size(), find_characters(piece.text, is_mark),
                                            SplitBehavior::merged_with_next);
      append_parts(out, std::move(piece), spans);
    }
    pieces = std::move(out);
    return {};
  }

 private:
  Metaspace options_;
};

/// Digits, Punctuation and WhitespaceSplit: matches are single characters of a class.
class CharacterSplit final : public PreTokenizer {
 public:
  using Class = bool (*)(char32_t);

  CharacterSplit(Class belongs, SplitBehavior behavior) : belongs_(belongs), behavior_(behavior) {}

  static Made digits(Fields& fields) {
    SWITCHYARD_ASSIGN(const bool single, fields.boolean("individual_digits", false));
    return made(is_numeric, single ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  static Made punctuation(Fields& fields) {
    SWITCHYARD_ASSIGN(const SplitBehavior behavior, read_behavior(fields, "Isolated"));
    return made(is_punctuation, behavior);
  }
  static Made white_space(Fields&) { return made(is_white_space, SplitBehavior::removed); }

  Status apply(std::vector<Piece>& pieces) const override {
    std::vector<Piece> out;
    for (Piece& piece : pieces) {
      const std::vector<Span> matches = find_characters(piece.text, belongs_);
      const std::vector<Span> spans = split(piece.text.size(), matches, behavior_);
      append_parts(out, std::move(piece), spans);
    }
    pieces = std::move(out);
    return {};
  }

 private:
  static Made made(Class belongs, SplitBehavior behavior) {
    return Made(std::make_unique<CharacterSplit>(belongs, behavior));
  }

  Class belongs_;
  SplitBehavior behavior_;
};

class Sequence final : public PreTokenizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Sequence>();
    SWITCHYARD_ASSIGN(const Json* list, fields.require("pretokenizers"));
    if (!list->is_array()) return fields.wrong_type("pretokenizers", "an array", *list);
    for (const Json& item : list->as_array()) {
      const std::string where =
          fmt::format("{}.pretokenizers[{}]", fields.where(), made->all_.size());
      SWITCHYARD_ASSIGN(std::unique_ptr<PreTokenizer> one, make_pre_tokenizer(item, where));
      made->all_.push_back(std::move(one));
    }
    return Made(std::move(made));
  }
  Status apply(std::vector<Piece>& pieces) const override {
    for (const auto& one : all_) SWITCHYARD_TRY(one->apply(pieces));
    return {};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> all_;
};

struct Kind {
  std::string_view name;
  Made (*make)(Fields&);
};
constexpr std::array kKinds = {
    Kind{"Split", Split::make},
    Kind{"ByteLevel", ByteLevel::make},
    Kind{"Metaspace", MetaspaceSplit::make},
    Kind{"Digits", CharacterSplit::digits},
    Kind{"Punctuation", CharacterSplit::punctuation},
    Kind{"WhitespaceSplit", CharacterSplit::white_space},
    Kind{"Sequence", Sequence::make},
};

}  // namespace

Made make_pre_tokenizer(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  SWITCHYARD_ASSIGN(const std::string type, fields.string("type"));
  for (const Kind& kind : kKinds) {
    if (kind.name != type) continue;
    SWITCHYARD_ASSIGN(std::unique_ptr<PreTokenizer> made, kind.make(fields));
    SWITCHYARD_TRY(fields.finish());
    return Made(std::move(made));
  }
  return fail(Code::unsupported, "{}: the pre-tokenizer \"{}\" is not supported", where, type);
}

}  // namespace switchyard::text
