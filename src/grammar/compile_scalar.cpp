// SPDX-License-Identifier: Apache-2.0
// Strings, numbers, and lists of values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "grammar/characters.h"
#include "grammar/compiler.h"
#include "grammar/numbers.h"
#include "grammar/pattern.h"

namespace switchyard::grammar {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int32_t>::max();

struct Format {
  std::string_view name, pattern;
};

/// Their shape alone: February 30 is a date here, as for most validators.
constexpr std::string_view kDate = R"(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))";
constexpr std::string_view kTime =
    R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kByte = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

Result<std::string> format_pattern(const Node& node, const std::string& name) {
  if (name == "date") return fmt::format("^{}$", kDate);
  if (name == "time") return fmt::format("^{}$", kTime);
  if (name == "date-time") return fmt::format("^{}T{}$", kDate, kTime);
  if (name == "uuid") return std::string("^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$");
  if (name == "ipv4") return fmt::format(R"(^{}(?:\.{}){{3}}$)", kByte, kByte);
  return bad_keyword(node, "format",
                     fmt::format("\"{}\" is not supported: expected date, time, date-time, uuid or "
                                 "ipv4",
                                 name));
}

Status accept_pattern(Compiler& to, const Node& node, std::string_view keyword,
                      std::string_view pattern, int32_t start) {
  Nfa nfa;
  const Result<Fragment> whole = add_pattern_string(nfa, pattern);
  if (!whole.ok()) return bad_keyword(node, keyword, whole.error().message);
  const Status accepted = to.accept(start, nfa, *whole);
  if (!accepted.ok()) return bad_keyword(node, keyword, accepted.error().message);
  return {};
}

/// least to most characters: one state for each number of them, which call for what is no plain ASCII.
Status write_counted(Compiler& to, int64_t least, int64_t most, int32_t start) {
  Network& net = to.network();
  const int32_t rare = net.add_state();
  Nfa nfa;
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  add_rare_character(nfa, whole.start, whole.end);
  SWITCHYARD_TRY(to.accept(rare, nfa, whole));
  const bool endless = most == kUnlimited;
  int32_t at = net.add_state();
  net.add_edge(start, '"', '"', at);
  for (int64_t i = 0;; ++i) {
    net.state(at).chain = rare;  // a number that no other string has
    net.state(at).to_least = static_cast<int32_t>(std::max<int64_t>(least - i, 0));
    net.state(at).to_most = static_cast<int32_t>(endless ? kUnlimited : most - i);
    if (i >= least) net.add_edge(at, '"', '"', to.end());
    if (i == most) return {};
    const int32_t next = endless && i >= least ? at : net.add_state();
    for (const CodeRange self : kSelfSpelled)
      net.add_edge(at, static_cast<int>(self.low), static_cast<int>(self.high), next);
    net.add_call(at, rare, next);
    if (next == at) return {};
    at = next;
  }
}

/// A bound as a whole number: `up` is the least one not below, else the largest one not above.
Result<int64_t> whole_bound(const Node& node, std::string_view keyword, bool up,
                            int64_t otherwise) {
  const Json* value = node.find(keyword);
  if (value == nullptr) return otherwise;
  if (!value->is_number())
    return bad_keyword(node, keyword,
                       fmt::format("found {}, expected a number", json_text(*value)));
  const bool exclusive = keyword.starts_with("exclusive");
  const int64_t step = !exclusive ? 0 : up ? 1 : -1;
  const auto limit = static_cast<double>(kLargestInteger);
  if (std::abs(value->as_double()) >= limit)  // beyond what is written: half open, or empty
    return value->as_double() > 0 ? kLargestInteger + (up ? 1 : 0)
                                  : -kLargestInteger - (up ? 0 : 1);
  if (value->is_integer()) return value->as_int() + step;
  const double number = value->as_double();
  const double rounded = up ? std::ceil(number) : std::floor(number);
  return static_cast<int64_t>(rounded) + (rounded == number ? step : 0);
}

}  // namespace

Status compile_string(Compiler& to, const Node& node, int32_t start) {
  SWITCHYARD_ASSIGN(const int64_t least, find_count(node, "minLength", 0));
  SWITCHYARD_ASSIGN(const int64_t most, find_count(node, "maxLength", kUnlimited));
  const bool counted = least > 0 || node.has("maxLength");
  for (const std::string_view keyword : {"pattern", "format"}) {
    const Json* value = node.find(keyword);
    if (value == nullptr) continue;
    if (!value->is_string()) return bad_keyword(node, keyword, "expected a string");
    if (counted || (node.has("pattern") && node.has("format")))
      return bad_keyword(node, keyword,
                         "together with another keyword about the same string is not supported: "
                         "use a quantifier in one pattern");
    std::string pattern = value->as_string();
    if (keyword == "format") {
      SWITCHYARD_ASSIGN(pattern, format_pattern(node, pattern));
    }
    return accept_pattern(to, node, keyword, pattern, start);
  }
  if (least > most)
    return bad_keyword(node, "minLength",
                       fmt::format("{} characters at least, but {} at most", least, most));
  const int64_t written = node.has("maxLength") ? most : least;
  if (written > Budget::kMaxStates)
    return bad_keyword(
        node, node.has("maxLength") ? "maxLength" : "minLength",
        fmt::format("{} characters need more than {} states", written, Budget::kMaxStates));
  if (counted) return write_counted(to, least, most, start);
  Nfa nfa;
  const Fragment whole = add_any_string(nfa);
  return to.accept(start, nfa, whole);
}

Status compile_integer(Compiler& to, const Node& node, int32_t start) {
  int64_t low = -kLargestInteger, high = kLargestInteger;
  for (const std::string_view keyword : {"minimum", "exclusiveMinimum"}) {
    SWITCHYARD_ASSIGN(const int64_t bound, whole_bound(node, keyword, true, low));
    low = std::max(low, bound);
  }
  for (const std::string_view keyword : {"maximum", "exclusiveMaximum"}) {
    SWITCHYARD_ASSIGN(const int64_t bound, whole_bound(node, keyword, false, high));
    high = std::min(high, bound);
  }
  if (low > high)
    return fail(Code::bad_request,
                "{}: no whole number of at most 18 digits lies within the bounds", node.at);
  Nfa nfa;
  const Fragment whole = add_integer(nfa, low, high);
  return to.accept(start, nfa, whole);
}

Status compile_number(Compiler& to, const Node& node, int32_t start) {
  for (const std::string_view keyword :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
    if (node.has(keyword))
      return bad_keyword(node, keyword, "of a number is not supported: only of an integer");
  Nfa nfa;
  const Fragment whole = add_number(nfa);
  return to.accept(start, nfa, whole);
}

Status compile_values(Compiler& to, const Node& node, int32_t start) {
  if (says_more_than(node, {"enum", "const", "type"}))
    return bad_keyword(node, node.has("enum") ? "enum" : "const",
                       "beside keywords other than type is not supported: leave them out");
  SWITCHYARD_ASSIGN(const Json* const list, find_array(node, "enum"));
  const Json* constant = node.find("const");
  Json::Array values = list != nullptr ? list->as_array() : Json::Array{*constant};
  if (list != nullptr && constant != nullptr)
    std::erase_if(values, [&](const Json& value) { return !same(value, *constant); });
  SWITCHYARD_ASSIGN(const std::vector<std::string> types, types_of(node));
  if (!types.empty())
    std::erase_if(values, [&](const Json& value) {
      return std::none_of(types.begin(), types.end(),
                          [&](const std::string& type) { return is_of_type(value, type); });
    });
  if (values.empty())
    return bad_keyword(node, list != nullptr ? "enum" : "const", "no value is left to choose");
  Nfa nfa;
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  for (const Json& value : values) {
    std::string text;
    if (value.is_string()) {
      text = plain_string(value.as_string());
    } else {
      JsonWriter(text).value(value);
    }
    nfa.add_literal(whole.start, text, whole.end);
    if (nfa.too_large()) return bad_keyword(node, "enum", Budget::too_many_states().message);
  }
  return to.accept(start, nfa, whole);
}

}  // namespace switchyard::grammar
