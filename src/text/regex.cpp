// SPDX-License-Identifier: Apache-2.0
// PCRE2 behind one class: UTF and Unicode classes on, just-in-time code where the machine allows it,
// match, depth and heap limits always, so that a pattern that backtracks without end is an error.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include "base/check.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace switchyard::text {
namespace {

constexpr uint32_t kMatchLimit = 20'000'000;  // steps; some tenths of a second
constexpr uint32_t kHeapLimitKib = 256 << 10;

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  const int length = pcre2_get_error_message(code, text, std::size(text));
  return length < 0 ? fmt::format("PCRE2 error {}", code) : reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }

  /// Like pcre2_match, but the short machine stack of compiled code is no reason to give up.
  int match(std::string_view text, size_t from, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found =
        pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, limits);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    return pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                       limits);
  }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (const auto invalid = find_invalid_utf8(pattern)) {
    return fail(Code::bad_file, "the pattern is no UTF-8 at byte {}", *invalid);
  }
  SWITCHYARD_ASSIGN(const std::string translated, to_pcre2(pattern));
  auto compiled = std::make_shared<Compiled>();
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) return fail(Code::out_of_memory, "no memory to compile a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby's syntax ^ and $ are ends of lines.
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK,
                                 &code, &offset, context);
  pcre2_compile_context_free(context);
  if (compiled->code == nullptr) {
    return fail(Code::bad_file, "the pattern \"{}\" is no regular expression: {} (near \"{}\")",
                pattern, message_of(code), translated.substr(0, offset));
  }
  compiled->limits = pcre2_match_context_create(nullptr);
  if (compiled->limits == nullptr) return fail(Code::out_of_memory, "no memory for a pattern");
  pcre2_set_match_limit(compiled->limits, kMatchLimit);
  pcre2_set_depth_limit(compiled->limits, kMatchLimit);
  pcre2_set_heap_limit(compiled->limits, kHeapLimitKib);
  // Where code may not be made executable the interpreter does the same work.
  (void)pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.pattern_ = pattern;
  regex.compiled_ = std::move(compiled);
  return regex;
}

Result<std::vector<Span>> Regex::find_all(std::string_view text) const {
  std::vector<Span> matches;
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!data) return fail(Code::out_of_memory, "no memory to match a pattern");
  for (size_t from = 0; from <= text.size();) {
    const int found = compiled_->match(text, from, data.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return fail(Code::bad_request,
                  "the tokenizer's pattern \"{}\" gave up on a text of {} bytes, at byte {}: {}",
                  pattern_, text.size(), from, message_of(found));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Span match{ends[0], ends[1]};
    SWITCHYARD_CHECK(match.begin >= from && match.end >= match.begin, "{} to {} from {}",
                     match.begin, match.end, from);
    if (match.begin == match.end && !matches.empty() && matches.back().end == match.end) {
      from += from < text.size() ? character_length(text, from) : 1;
      continue;
    }
    matches.push_back(match);
    from = match.end;
  }
  return matches;
}

}  // namespace switchyard::text
