// SPDX-License-Identifier: Apache-2.0
// Schemas: any text compiles or is refused; a walk that follows masks never meets a token that does not fit, never gets stuck,
// and what it ends with is JSON.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_locate.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"

namespace {

using namespace switchyard;

constexpr int kMaxSteps = 60;

std::shared_ptr<const grammar::TokenTrie> make_tokens() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back({static_cast<char>(byte)});
  for (const char* token :
       {"{\"", "\": ", ", \"", "\"}", "]}", "},{", "null", "true", "\xc3\xa9", "00"})
    bytes.emplace_back(token);
  bytes.emplace_back();
  const auto end = static_cast<int32_t>(bytes.size()) - 1;
  return std::make_shared<const grammar::TokenTrie>(std::move(bytes), std::vector<int32_t>{end});
}

/// The first allowed token from `from` on, around; -1: none.
int32_t choose(std::span<const uint64_t> mask, int32_t from, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const int32_t token = (from + i) % count;
    if (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) return token;
  }
  return -1;
}

void check_json(const std::string& text) {
  const JsonFault fault = locate_json_fault(text);
  SWITCHYARD_CHECK(!fault.found, "\"{}\" at byte {}: {}", text, fault.offset, fault.what);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokens = make_tokens();
  const std::string_view schema(reinterpret_cast<const char*>(data), size);
  auto compiled = grammar::Grammar::compile_text(schema);
  if (!compiled.ok()) return 0;
  grammar::Matcher matcher(
      std::make_shared<grammar::Constraint>(*std::move(compiled), tokens, size_t{1} << 20));
  uint32_t random = static_cast<uint32_t>(size) * 2654435761u + (size > 0 ? data[size / 2] : 0);
  std::string text;
  for (int step = 0; step < kMaxSteps; ++step) {
    random = random * 1664525u + 1013904223u;
    const int32_t count = tokens->num_tokens();
    const int32_t token =
        choose(matcher.allowed(),
               static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(count)), count);
    SWITCHYARD_CHECK(token >= 0, "stuck behind \"{}\"", text);
    const bool can_end = matcher.can_end();
    SWITCHYARD_CHECK(matcher.accept(token), "token {} behind \"{}\"", token, text);
    if (tokens->is_end(token)) {
      SWITCHYARD_CHECK(can_end, "ended behind \"{}\"", text);
      check_json(text);
      break;
    }
    text += tokens->bytes(token);
  }
  return 0;
}
