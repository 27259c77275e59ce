// SPDX-License-Identifier: Apache-2.0
// Jinja: any bytes compile or are refused; what compiles renders within a small budget or fails, its segments are the
// rendered text, no two neighbours have one origin, and all of it is valid UTF-8 within the limit.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/jinja.h"
#include "text/unicode.h"

namespace {

using namespace switchyard;

constexpr std::string_view kVariables = R"({
  "messages": [{"role": "system", "content": "Be brief."},
               {"role": "user", "content": "<|im_end|> \u00e9\u4f60 it's\n2 "},
               {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"a": [1, 2.5]}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
  "bos_token": "<s>", "add_generation_prompt": true, "n": -3, "x": 0.5, "nothing": null})";

text::RenderOptions small_budget() {
  text::RenderOptions options;
  options.limits.work = 20'000;
  options.limits.output_bytes = 10'000;
  options.now = std::tm{};
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const text::Value variables =
      *text::Value::from_json(*parse_json(kVariables, "variables"));
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = text::Template::compile(source, "fuzz");
  if (!compiled.ok()) return 0;
  const text::RenderOptions options = small_budget();
  const auto whole = compiled->render(variables, options);
  const auto segments = compiled->render_segments(variables, options);
  SWITCHYARD_CHECK(whole.ok() == segments.ok(), "rendered once of two times");
  if (!whole.ok()) return 0;
  std::string joined;
  const text::Segment* before = nullptr;
  for (const text::Segment& segment : *segments) {
    SWITCHYARD_CHECK(!segment.text.empty(), "an empty segment");
    SWITCHYARD_CHECK(!before || before->from_template != segment.from_template, "one origin twice");
    before = &segment;
    joined += segment.text;
  }
  SWITCHYARD_CHECK(joined == *whole, "\"{}\" is not \"{}\"", joined, *whole);
  SWITCHYARD_CHECK(whole->size() <= options.limits.output_bytes, "{} bytes", whole->size());
  SWITCHYARD_CHECK(!text::find_invalid_utf8(*whole), "\"{}\"", *whole);
  return 0;
}
