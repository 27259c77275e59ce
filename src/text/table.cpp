// SPDX-License-Identifier: Apache-2.0
// The kinds of tokenizer files, in the order in which they are looked for.
#include <array>

#include "base/files.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

namespace switchyard::text {
namespace {

using Opened = Result<std::unique_ptr<Tokenizer>>;

constexpr uint64_t kMaxFile = uint64_t{256} << 20;

Opened open_json(const std::string& path, const TokenizerConfig& config) {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMaxFile));
  return load_tokenizer_json(text, path, config);
}

Opened open_sentencepiece(const std::string& path, const TokenizerConfig& config) {
  SWITCHYARD_ASSIGN(const std::string bytes, read_text_file(path, kMaxFile));
  return load_sentencepiece_model(bytes, path, config);
}

struct Kind {
  std::string_view file;
  Opened (*open)(const std::string& path, const TokenizerConfig& config);
};
constexpr std::array kKinds = {
    Kind{"tokenizer.json", open_json},
    Kind{"tokenizer.model", open_sentencepiece},
    Kind{"spiece.model", open_sentencepiece},
};

}  // namespace

Opened open_tokenizer(const std::string& model_folder) {
  std::string names;
  for (const Kind& kind : kKinds) {
    const std::string path = fmt::format("{}/{}", model_folder, kind.file);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.file);
    if (!file_exists(path)) continue;
    Result<TokenizerConfig> config = read_tokenizer_config(model_folder);
    if (!config.ok()) return with_context(std::move(config).error(), model_folder);
    return kind.open(path, *config);
  }
  return fail(Code::bad_file, "{} holds no tokenizer: expected one of {}", model_folder, names);
}

}  // namespace switchyard::text
