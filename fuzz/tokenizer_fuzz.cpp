// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: any bytes load or are refused; what loads encodes a text or refuses it, and decodes
// token by token to the same valid UTF-8 as at once.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace {

constexpr std::string_view kText =
    "Hello world!  123\n\n it's ab abc \xE4\xBD\xA0\xE5\xA5\xBD e\xCC\x81 \xF0\x9F\x98\x80 <s></s> "
    "aaaa\t";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = text::load_tokenizer_json(json, "fuzz", {});
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode(kText, {});
  if (!ids.ok()) return 0;
  const std::string whole = (*tokenizer)->decode(*ids, {});
  SWITCHYARD_CHECK(!text::find_invalid_utf8(whole), "\"{}\"", whole);
  text::DecodeStream stream(**tokenizer);
  std::string parts;
  for (const int32_t id : *ids) parts += stream.push(id);
  parts += stream.finish();
  SWITCHYARD_CHECK(parts == whole, "\"{}\" is not \"{}\"", parts, whole);
  return 0;
}
