// SPDX-License-Identifier: Apache-2.0
// Reads the goldens; a missing or damaged file throws, which fails the test that asked.
#include "text/golden_case.h"

#include <sstream>

#include "base/files.h"
#include "base/json.h"

namespace switchyard::text {
namespace {

const std::string kFolder = SWITCHYARD_SOURCE_DIR "/tests/golden/tokenizers/";

std::vector<Json> read_lines(const std::string& path) {
  std::istringstream text(read_text_file(path, uint64_t{1} << 24).value());
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(parse_json(line, path).value());
  }
  return lines;
}

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

std::string text_or(const Json* json, const std::string& otherwise) {
  return json != nullptr ? json->as_string() : otherwise;
}

std::optional<int32_t> id_or_none(const Json* json) {
  if (json == nullptr || json->as_int() < 0) return std::nullopt;
  return static_cast<int32_t>(json->as_int());
}

}  // namespace

std::vector<GoldenTokenizer> read_golden_tokenizers() {
  const Json index = read_json_file(kFolder + "index.json").value();
  std::vector<GoldenTokenizer> all;
  for (const Json& entry : index.find("tokenizers")->as_array()) {
    const std::string file = kFolder + entry.find("tokenizer")->as_string();
    all.push_back({entry.find("name")->as_string(), file.substr(0, file.rfind('/')),
                   entry.find("reference")->as_string(), kFolder + entry.find("cases")->as_string(),
                   id_or_none(entry.find("bos_id")), id_or_none(entry.find("eos_id"))});
  }
  return all;
}

std::vector<GoldenCase> read_golden_cases(const GoldenTokenizer& tokenizer) {
  std::vector<std::string> corpus;
  for (const Json& line : read_lines(kFolder + "corpus.jsonl")) {
    corpus.push_back(line.find("text")->as_string());
  }
  std::vector<GoldenCase> cases;
  for (const Json& line : read_lines(tokenizer.cases)) {
    GoldenCase one;
    if (const Json* text = line.find("text")) {
      one.text = corpus.at(static_cast<size_t>(text->as_int()));
    }
    one.ids = ids_of(*line.find("ids"));
    one.plain_ids = line.find("plain_ids") != nullptr ? ids_of(*line.find("plain_ids")) : one.ids;
    one.decoded = text_or(line.find("decoded"), one.text.value_or(""));
    one.decoded_skip = text_or(line.find("decoded_skip"), one.text.value_or(""));
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace switchyard::text
