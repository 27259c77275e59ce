// SPDX-License-Identifier: Apache-2.0
// ByteLevel and Fuse make one token of all tokens. From there on a stage sees fragments of that one
// token; only Strip and Fuse may follow, because only they can be told apart from their fragments.
#include "text/decoder.h"

#include <array>

#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/metaspace.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

using Stages = std::vector<std::unique_ptr<DecodeStage>>;

/// A stage whose steps copy its options: `Step(options, next)`.
template <class Step, class Options>
class Stage final : public DecodeStage {
 public:
  explicit Stage(Options options) : options_(std::move(options)) {}
  std::unique_ptr<DecodeStep> start(DecodeStep& next) const override {
    return std::make_unique<Step>(options_, next);
  }

 private:
  Options options_;
};

struct NoOptions {};

class SpacedStep final : public DecodeStep {
 public:
  SpacedStep(NoOptions, DecodeStep& next) : next_(next) {}
  void push(std::string_view token) override {
    if (!first_) next_.push(" ");
    first_ = false;
    next_.push(token);
  }
  void finish() override { next_.finish(); }

 private:
  DecodeStep& next_;
  bool first_ = true;
};

class ByteLevelStep final : public DecodeStep {
 public:
  ByteLevelStep(NoOptions, DecodeStep& next) : next_(next) {
    bytes_.reserve(256);  // more than any usual token: pushing one does not allocate
    out_.reserve(256);
  }
  void push(std::string_view token) override {
    out_.clear();
    characters_.push(from_byte_alphabet(token, bytes_) ? std::string_view(bytes_) : token, out_);
    if (!out_.empty()) next_.push(out_);
  }
  void finish() override {
    out_.clear();
    characters_.finish(out_);
    if (!out_.empty()) next_.push(out_);
    next_.finish();
  }

 private:
  DecodeStep& next_;
  Utf8Stream characters_;
  std::string bytes_, out_;  // reused from token to token
};

class MetaspaceStep final : public DecodeStep {
 public:
  MetaspaceStep(Metaspace options, DecodeStep& next) : options_(options), next_(next) {}
  void push(std::string_view token) override {
    next_.push(options_.unmark(token, first_));
    first_ = false;
  }
  void finish() override { next_.finish(); }

 private:
  Metaspace options_;
  DecodeStep& next_;
  bool first_ = true;
};

struct ReplaceOptions {
  std::string from, to;
};

class ReplaceStep final : public DecodeStep {
 public:
  ReplaceStep(ReplaceOptions options, DecodeStep& next)
      : options_(std::move(options)), next_(next) {}
  void push(std::string_view token) override {
    std::string out;
    size_t done = 0;
    for (size_t at; (at = token.find(options_.from, done)) != std::string_view::npos;) {
      out += token.substr(done, at - done);
      out += options_.to;
      done = at + options_.from.size();
    }
    out += token.substr(done);
    next_.push(out);
  }
  void finish() override { next_.finish(); }

 private:
  ReplaceOptions options_;
  DecodeStep& next_;
};

/// A run of <0xNN> tokens becomes its characters, or one U+FFFD for each when any part is broken:
/// so the run is held back until it ends.
class ByteFallbackStep final : public DecodeStep {
 public:
  ByteFallbackStep(NoOptions, DecodeStep& next) : next_(next) {}
  void push(std::string_view token) override {
    const int byte = byte_of_token(token);
    if (byte >= 0) {
      run_ += static_cast<char>(byte);
      return;
    }
    flush();
    next_.push(token);
  }
  void finish() override {
    flush();
    next_.finish();
  }

 private:
  void flush() {
    if (run_.empty()) return;
    if (!find_invalid_utf8(run_)) {
      next_.push(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_.push(kReplacement);
    }
    run_.clear();
  }

  DecodeStep& next_;
  std::string run_;
};

struct StripOptions {
  std::string content;  // one character
  int64_t start = 0, stop = 0;
  bool fused = false;  // what comes are fragments of one token
};

class StripStep final : public DecodeStep {
 public:
  StripStep(StripOptions options, DecodeStep& next)
      : options_(std::move(options)), next_(next), left_(options_.start) {}

  void push(std::string_view token) override {
    const std::string& c = options_.content;
    for (; left_ > 0 && token.starts_with(c); --left_) token.remove_prefix(c.size());
    if (!token.empty()) left_ = 0;
    std::string out;
    // Held back are only copies of the one character, `stop` of them at most.
    for (size_t at = 0; at < token.size();) {
      if (token.substr(at).starts_with(c)) {
        if (++held_ > options_.stop) out += c, --held_;
        at += c.size();
        continue;
      }
      for (; held_ > 0; --held_) out += c;
      const size_t length = character_length(token, at);
      out += token.substr(at, length);
      at += length;
    }
    if (options_.fused) {
      if (!out.empty()) next_.push(out);
      return;
    }
    next_.push(out);
    left_ = options_.start;
    held_ = 0;
  }
  void finish() override { next_.finish(); }

 private:
  StripOptions options_;
  DecodeStep& next_;
  int64_t left_;      // how many may still go at the start
  int64_t held_ = 0;  // copies at the end so far
};

struct Building {
  Stages stages;
  bool fused = false;
};

template <class Step, class Options = NoOptions>
void append(Building& to, Options options = {}) {
  to.stages.push_back(std::make_unique<Stage<Step, Options>>(std::move(options)));
}

Status append_replace(Fields& fields, Building& to) {
  SWITCHYARD_ASSIGN(const Json* pattern, fields.require("pattern"));
  SWITCHYARD_ASSIGN(const Pattern read, Pattern::read(*pattern, fields.at("pattern")));
  if (read.literal() == nullptr) {
    return fail(Code::unsupported, "{}: a decoder that replaces a Regex is not supported",
                fields.at("pattern"));
  }
  ReplaceOptions options;
  options.from = *read.literal();
  SWITCHYARD_ASSIGN(options.to, fields.string("content"));
  append<ReplaceStep>(to, std::move(options));
  return {};
}

Status append_strip(Fields& fields, Building& to) {
  StripOptions options;
  SWITCHYARD_ASSIGN(options.content, fields.string("content"));
  const std::string& content = options.content;
  if (content.empty() || character_length(content, 0) != content.size()) {
    return fail(Code::bad_file, "{}: expected one character, found \"{}\"", fields.at("content"),
                content);
  }
  SWITCHYARD_ASSIGN(options.start, fields.integer("start", 0));
  SWITCHYARD_ASSIGN(options.stop, fields.integer("stop", 0));
  if (options.start < 0 || options.stop < 0) {
    return fail(Code::bad_file, "{}: start and stop must not be negative", fields.where());
  }
  options.fused = to.fused;
  append<StripStep>(to, std::move(options));
  return {};
}

Status append_metaspace(Fields& fields, Building& to) {
  SWITCHYARD_ASSIGN(const Metaspace options, Metaspace::read(fields));
  append<MetaspaceStep>(to, options);
  return {};
}

Status append_byte_level(Fields& fields, Building& to) {
  fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
  append<ByteLevelStep>(to);
  to.fused = true;
  return {};
}

Status append_byte_fallback(Fields&, Building& to) {
  append<ByteFallbackStep>(to);
  return {};
}

Status append_fuse(Fields&, Building& to) {
  to.fused = true;  // fragments pass as they are
  return {};
}

Status append_any(const Json& json, const std::string& where, Building& to);

Status append_sequence(Fields& fields, Building& to) {
  SWITCHYARD_ASSIGN(const Json* list, fields.require("decoders"));
  if (!list->is_array()) return fields.wrong_type("decoders", "an array", *list);
  size_t index = 0;
  for (const Json& item : list->as_array()) {
    SWITCHYARD_TRY(append_any(item, fmt::format("{}.decoders[{}]", fields.where(), index++), to));
  }
  return {};
}

struct Kind {
  std::string_view name;
  Status (*append)(Fields&, Building&);
  bool takes_fragments;
};
constexpr std::array kKinds = {
    Kind{"ByteLevel", append_byte_level, false},
    Kind{"Metaspace", append_metaspace, false},
    Kind{"Replace", append_replace, false},
    Kind{"ByteFallback", append_byte_fallback, false},
    Kind{"Fuse", append_fuse, true},
    Kind{"Strip", append_strip, true},
    Kind{"Sequence", append_sequence, true},
};

Status append_any(const Json& json, const std::string& where, Building& to) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  SWITCHYARD_ASSIGN(const std::string type, fields.string("type"));
  for (const Kind& kind : kKinds) {
    if (kind.name != type) continue;
    if (to.fused && !kind.takes_fragments) {
      return fail(Code::unsupported,
                  "{}: the decoder \"{}\" behind Fuse or ByteLevel is not "
                  "supported",
                  where, type);
    }
    SWITCHYARD_TRY(kind.append(fields, to));
    return fields.finish();
  }
  return fail(Code::unsupported, "{}: the decoder \"{}\" is not supported", where, type);
}

}  // namespace

Result<Decoder> Decoder::make(const Json* json, const std::string& where) {
  Building building;
  if (json == nullptr) {
    append<SpacedStep>(building);
  } else {
    SWITCHYARD_TRY(append_any(*json, where, building));
  }
  Decoder decoder;
  decoder.stages_ = std::move(building.stages);
  return decoder;
}

std::vector<std::unique_ptr<DecodeStep>> Decoder::start(DecodeStep& sink) const {
  std::vector<std::unique_ptr<DecodeStep>> steps(stages_.size());
  DecodeStep* next = &sink;
  for (size_t i = stages_.size(); i-- > 0;) {
    steps[i] = stages_[i]->start(*next);
    next = steps[i].get();
  }
  return steps;
}

}  // namespace switchyard::text
