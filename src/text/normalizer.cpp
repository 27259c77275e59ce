// SPDX-License-Identifier: Apache-2.0
// One class for each kind, and the table of their names at the end.
#include "text/normalizer.h"

#include <array>
#include <vector>

#include "text/json_fields.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

using Made = Result<std::unique_ptr<Normalizer>>;

template <NormalForm form>
class Form final : public Normalizer {
 public:
  static Made make(Fields&) { return Made(std::make_unique<Form>()); }
  Status apply(Piece& piece) const override {
    piece.text = normal_form(piece.text, form);
    return {};
  }
};

class Lowercase final : public Normalizer {
 public:
  static Made make(Fields&) { return Made(std::make_unique<Lowercase>()); }
  Status apply(Piece& piece) const override {
    std::string out;
    out.reserve(piece.text.size());
    for (size_t at = 0; at < piece.text.size();) {
      append_lower_case(out, next_character(piece.text, at));
    }
    piece.text = std::move(out);
    return {};
  }
};

class Strip final : public Normalizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Strip>();
    SWITCHYARD_ASSIGN(made->left_, fields.boolean("strip_left", true));
    SWITCHYARD_ASSIGN(made->right_, fields.boolean("strip_right", true));
    return Made(std::move(made));
  }
  Status apply(Piece& piece) const override {
    size_t begin = 0, end = piece.text.size();
    while (left_ && begin < end) {
      size_t next = begin;
      if (!is_white_space(next_character(piece.text, next))) break;
      begin = next;
    }
    while (right_ && begin < end) {
      size_t before = end;
      if (!is_white_space(previous_character(piece.text, before))) break;
      end = before;
    }
    if (begin > 0) piece.at_start = false;
    piece.text = piece.text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_ = true;
  bool right_ = true;
};

class Prepend final : public Normalizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Prepend>();
    SWITCHYARD_ASSIGN(made->text_, fields.string("prepend"));
    return Made(std::move(made));
  }
  Status apply(Piece& piece) const override {
    if (!piece.text.empty()) piece.text.insert(0, text_);
    return {};
  }

 private:
  std::string text_;
};

class Replace final : public Normalizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Replace>();
    SWITCHYARD_ASSIGN(const Json* pattern, fields.require("pattern"));
    SWITCHYARD_ASSIGN(made->pattern_, Pattern::read(*pattern, fields.at("pattern")));
    SWITCHYARD_ASSIGN(made->content_, fields.string("content"));
    return Made(std::move(made));
  }
  Status apply(Piece& piece) const override {
    SWITCHYARD_ASSIGN(const std::vector<Span> matches, pattern_.find_all(piece.text));
    if (matches.empty()) return {};
    std::string out;
    size_t done = 0;
    for (const Span& match : matches) {
      out.append(piece.text, done, match.begin - done);
      out += content_;
      done = match.end;
      if (out.size() > kMaxText) {
        return fail(Code::bad_request, "the tokenizer's Replace makes over {} bytes of {}",
                    kMaxText, piece.text.size());
      }
    }
    out.append(piece.text, done);
    // A first character that vanishes leaves the text to begin later in the input.
    if (content_.empty() && matches.front().begin == 0 && matches.front().end > 0) {
      piece.at_start = false;
    }
    piece.text = std::move(out);
    return {};
  }

 private:
  static constexpr size_t kMaxText = size_t{64} << 20;  // a chain of them must not fill the memory
  Pattern pattern_;
  std::string content_;
};

class Sequence final : public Normalizer {
 public:
  static Made make(Fields& fields) {
    auto made = std::make_unique<Sequence>();
    SWITCHYARD_ASSIGN(const Json* list, fields.require("normalizers"));
    if (!list->is_array()) return fields.wrong_type("normalizers", "an array", *list);
    for (const Json& item : list->as_array()) {
      const std::string where =
          fmt::format("{}.normalizers[{}]", fields.where(), made->all_.size());
      SWITCHYARD_ASSIGN(std::unique_ptr<Normalizer> one, make_normalizer(item, where));
      made->all_.push_back(std::move(one));
    }
    return Made(std::move(made));
  }
  Status apply(Piece& piece) const override {
    for (const auto& one : all_) SWITCHYARD_TRY(one->apply(piece));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> all_;
};

struct Kind {
  std::string_view name;
  Made (*make)(Fields&);
};
constexpr std::array kKinds = {
    Kind{"NFC", Form<NormalForm::nfc>::make},
    Kind{"NFD", Form<NormalForm::nfd>::make},
    Kind{"NFKC", Form<NormalForm::nfkc>::make},
    Kind{"NFKD", Form<NormalForm::nfkd>::make},
    Kind{"Lowercase", Lowercase::make},
    Kind{"Strip", Strip::make},
    Kind{"Prepend", Prepend::make},
    Kind{"Replace", Replace::make},
    Kind{"Sequence", Sequence::make},
};

}  // namespace

Made make_normalizer(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  SWITCHYARD_ASSIGN(const std::string type, fields.string("type"));
  for (const Kind& kind : kKinds) {
    if (kind.name != type) continue;
    SWITCHYARD_ASSIGN(std::unique_ptr<Normalizer> made, kind.make(fields));
    SWITCHYARD_TRY(fields.finish());
    return Made(std::move(made));
  }
  return fail(Code::unsupported, "{}: the normalizer \"{}\" is not supported", where, type);
}

}  // namespace switchyard::text
