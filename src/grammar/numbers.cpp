// SPDX-License-Identifier: Apache-2.0
#include "grammar/numbers.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace switchyard::grammar {
namespace {

constexpr int kIntegerDigits = 18, kFractionDigits = 17, kExponentDigits = 2;

/// Digits at `at` and on, of numbers that have begun like both bounds so far (`low`, `high`: only like that one).
struct Range {
  std::string_view low, high;  // of one length
  bool at_low = true, at_high = true;
};

void add_digits(Nfa& nfa, const Range& range, size_t at, int32_t from, int32_t to);

void add_rest(Nfa& nfa, Range range, size_t at, char low, char high, int32_t from, int32_t to) {
  if (low > high) return;
  const int32_t next = at + 1 == range.low.size() ? to : nfa.add_state();
  nfa.add_edge(from, low, high, next);
  if (next != to) add_digits(nfa, range, at + 1, next, to);
}

/// The digit of a bound goes on along it; those between are free of it.
void add_digits(Nfa& nfa, const Range& range, size_t at, int32_t from, int32_t to) {
  char low = range.at_low ? range.low[at] : '0', high = range.at_high ? range.high[at] : '9';
  if (range.at_low && range.at_high && low == high)
    return add_rest(nfa, range, at, low, high, from, to);
  if (range.at_low) {
    add_rest(nfa, {range.low, range.high, true, false}, at, low, low, from, to);
    ++low;
  }
  if (range.at_high) {
    add_rest(nfa, {range.low, range.high, false, true}, at, high, high, from, to);
    --high;
  }
  add_rest(nfa, {range.low, range.high, false, false}, at, low, high, from, to);
}

/// 0 <= low <= high, by the number of digits.
void add_natural(Nfa& nfa, int64_t low, int64_t high, int32_t from, int32_t to) {
  int64_t first = 0, last = 9;
  for (int digits = 1; digits <= kIntegerDigits; ++digits) {
    const int64_t least = std::max(first, low), most = std::min(last, high);
    if (least <= most) {
      const std::string a = std::to_string(least), b = std::to_string(most);
      add_digits(nfa, {a, b}, 0, from, to);
    }
    if (last >= high) return;
    first = last + 1;
    last = last * 10 + 9;
  }
}

/// One to `most` digits.
void add_some_digits(Nfa& nfa, int most, int32_t from, int32_t to) {
  for (int i = 0; i < most; ++i) {
    const int32_t next = nfa.add_state();
    nfa.add_edge(from, '0', '9', next);
    nfa.add_free(next, to);
    from = next;
  }
}

void add_exponent(Nfa& nfa, int32_t from, int32_t to) {
  const int32_t sign = nfa.add_state(), digits = nfa.add_state();
  nfa.add_edge(from, 'e', 'e', sign);
  nfa.add_edge(from, 'E', 'E', sign);
  nfa.add_edge(sign, '+', '+', digits);
  nfa.add_edge(sign, '-', '-', digits);
  nfa.add_free(sign, digits);
  add_some_digits(nfa, kExponentDigits, digits, to);
}

}  // namespace

Fragment add_integer(Nfa& nfa, int64_t low, int64_t high) {
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  if (high >= 0) add_natural(nfa, std::max<int64_t>(low, 0), high, whole.start, whole.end);
  if (low < 0) {
    const int32_t minus = nfa.add_state();
    nfa.add_edge(whole.start, '-', '-', minus);
    add_natural(nfa, std::max<int64_t>(1, -high), -low, minus, whole.end);
  }
  return whole;
}

Fragment add_number(Nfa& nfa) {
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  const int32_t digits = nfa.add_state(), first = nfa.add_state(), integer = nfa.add_state(),
                point = nfa.add_state(), fraction = nfa.add_state();
  nfa.add_edge(whole.start, '-', '-', digits);
  nfa.add_free(whole.start, digits);
  nfa.add_edge(digits, '0', '0', integer);
  nfa.add_edge(digits, '1', '9', first);
  nfa.add_free(first, integer);
  add_some_digits(nfa, kIntegerDigits - 1, first, integer);
  nfa.add_edge(integer, '.', '.', point);
  add_some_digits(nfa, kFractionDigits, point, fraction);
  for (const int32_t before : {integer, fraction}) {
    nfa.add_free(before, whole.end);
    add_exponent(nfa, before, whole.end);
  }
  return whole;
}

}  // namespace switchyard::grammar
