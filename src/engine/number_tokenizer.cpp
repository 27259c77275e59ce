// SPDX-License-Identifier: Apache-2.0
#include "engine/number_tokenizer.h"

#include <string>

#include <fmt/format.h>

namespace switchyard::engine {
namespace {

class Numbers final : public text::Decoding {
 public:
  void push(int32_t id, std::string& out) override {
    fmt::format_to(std::back_inserter(out), "{} ", id);
  }
  void finish(std::string&) override {}
};

class NumberTokenizer final : public text::Tokenizer {
 public:
  explicit NumberTokenizer(int vocab) : vocab_(vocab) {}

  Result<std::vector<int32_t>> encode(std::string_view, const text::EncodeOptions&) const override {
    return fail(Code::bad_request,
                "a model of random weights has no words: give prompt_tokens, not text");
  }
  std::unique_ptr<text::Decoding> start_decoding(const text::DecodeOptions&) const override {
    return std::make_unique<Numbers>();
  }
  int32_t vocab_size() const override { return vocab_; }
  std::optional<int32_t> find_token(std::string_view) const override { return {}; }
  std::string_view token_text(int32_t) const override { return {}; }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return {}; }
  std::optional<int32_t> eos_id() const override { return {}; }

 private:
  int vocab_;
};

}  // namespace

std::unique_ptr<text::Tokenizer> make_number_tokenizer(int vocab) {
  return std::make_unique<NumberTokenizer>(vocab);
}

}  // namespace switchyard::engine
