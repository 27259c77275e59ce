// SPDX-License-Identifier: Apache-2.0
#include "cli/prompts.h"

#include <algorithm>
#include <cstdint>

#include "base/files.h"
#include "base/json.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

/// The error of a line is the user's, whatever the parser calls it.
Error bad_line(const Json& json, std::string_view what, const std::string& where) {
  return fail(Code::bad_request, "{}: expected an object with a string '{}', found {}", where, what,
              json_text(json));
}

Result<Prompt> parse_line(std::string_view line, const std::string& topic,
                          const std::string& where) {
  Result<Json> parsed = parse_json(line, where);
  if (!parsed.ok()) return Error(Code::bad_request, std::move(parsed).error().message);
  const Json& json = *parsed;
  const Json* text = json.find("prompt");
  if (text == nullptr || !text->is_string()) return bad_line(json, "prompt", where);
  const Json* own = json.find("topic");
  if (own != nullptr && !own->is_string()) return bad_line(json, "topic", where);
  return Prompt{text->as_string(), own != nullptr ? own->as_string() : topic, where};
}

}  // namespace

std::string stem(std::string_view path) {
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  const size_t dot = name.find_last_of('.');
  return std::string(dot == 0 ? name : name.substr(0, dot));
}

Result<std::vector<Prompt>> read_prompts(const std::string& path, const std::string& topic) {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMostBytes));
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string where = fmt::format("{}:{}", path, ++number);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (path.ends_with(".jsonl")) {
      SWITCHYARD_ASSIGN(Prompt prompt, parse_line(line, topic, where));
      prompts.push_back(std::move(prompt));
    } else {
      prompts.push_back({std::string(line), topic, where});
    }
  }
  if (prompts.empty())
    return fail(Code::bad_request, "{}: holds no prompt: expected one a line", path);
  return prompts;
}

}  // namespace switchyard::cli
