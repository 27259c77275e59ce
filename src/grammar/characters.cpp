// SPDX-License-Identifier: Apache-2.0
#include "grammar/characters.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace switchyard::grammar {
namespace {

/// A code point as 1 to 4 bytes of UTF-8.
struct Utf8 {
  std::array<uint8_t, 4> bytes{};
  size_t size = 0;
};

Utf8 to_utf8(uint32_t code) {
  const auto low = [&](int shift) { return static_cast<uint8_t>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {{static_cast<uint8_t>(code)}, 1};
  if (code < 0x800) return {{static_cast<uint8_t>(0xC0 | code >> 6), low(0)}, 2};
  if (code < 0x10000) return {{static_cast<uint8_t>(0xE0 | code >> 12), low(6), low(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | code >> 18), low(12), low(6), low(0)}, 4};
}

/// Edges for low to high, whose encodings have one length and where each byte's range is free of the others.
void add_block(Nfa& nfa, uint32_t low, uint32_t high, int32_t from, int32_t to) {
  const Utf8 first = to_utf8(low), last = to_utf8(high);
  for (size_t i = 0; i < first.size; ++i) {
    const int32_t next = i + 1 == first.size ? to : nfa.add_state();
    nfa.add_edge(from, first.bytes[i], last.bytes[i], next);
    from = next;
  }
}

/// Cuts a range until it is made of such blocks: at lengths, then at the multiples of 64, 4096, ...
void add_utf8(Nfa& nfa, uint32_t low, uint32_t high, int32_t from, int32_t to) {
  for (const uint32_t longest : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low > longest || high <= longest) continue;
    add_utf8(nfa, low, longest, from, to);
    return add_utf8(nfa, longest + 1, high, from, to);
  }
  for (int shift = 6; shift <= 18 && high >= 0x80; shift += 6) {
    const uint32_t rest = (1u << shift) - 1;
    if ((low & ~rest) == (high & ~rest)) continue;
    if ((low & rest) != 0) {
      add_utf8(nfa, low, low | rest, from, to);
      return add_utf8(nfa, (low | rest) + 1, high, from, to);
    }
    if ((high & rest) != rest) {
      add_utf8(nfa, low, (high & ~rest) - 1, from, to);
      return add_utf8(nfa, high & ~rest, high, from, to);
    }
  }
  add_block(nfa, low, high, from, to);
}

/// The part of low to high that lies in [first, last], if any.
void add_part(Nfa& nfa, CodeRange range, uint32_t first, uint32_t last, int32_t from, int32_t to) {
  const uint32_t low = std::max(range.low, first), high = std::min(range.high, last);
  if (low <= high) add_utf8(nfa, low, high, from, to);
}

/// The escape of a character that cannot stand for itself.
std::string escape(uint32_t code) {
  constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (size_t i = 0; i < kShort.size(); i += 2)
    if (static_cast<uint32_t>(kShort[i]) == code) return {'\\', kShort[i + 1]};
  return fmt::format("\\u{:04x}", code);
}

void add_hex(Nfa& nfa, int32_t from, int32_t to) {
  nfa.add_edge(from, '0', '9', to);
  nfa.add_edge(from, 'a', 'f', to);
  nfa.add_edge(from, 'A', 'F', to);
}

/// `count` hexadecimal digits.
void add_hexes(Nfa& nfa, int count, int32_t from, int32_t to) {
  for (int i = 0; i < count; ++i) {
    const int32_t next = i + 1 == count ? to : nfa.add_state();
    add_hex(nfa, from, next);
    from = next;
  }
}

int32_t add_byte(Nfa& nfa, int32_t from, char byte) {
  const int32_t to = nfa.add_state();
  nfa.add_literal(from, {&byte, 1}, to);
  return to;
}

int32_t add_d(Nfa& nfa, int32_t from) {
  const int32_t to = nfa.add_state();
  nfa.add_edge(from, 'd', 'd', to);
  nfa.add_edge(from, 'D', 'D', to);
  return to;
}

/// \uD8xx to \uDBxx and the second half, which must follow.
void add_surrogate_pair(Nfa& nfa, int32_t after_d, int32_t to) {
  const int32_t high = nfa.add_state(), middle = nfa.add_state(), low = nfa.add_state();
  nfa.add_edge(after_d, '8', '9', high);
  nfa.add_edge(after_d, 'a', 'b', high);
  nfa.add_edge(after_d, 'A', 'B', high);
  add_hexes(nfa, 2, high, middle);
  const int32_t second = add_d(nfa, add_byte(nfa, add_byte(nfa, middle, '\\'), 'u'));
  nfa.add_edge(second, 'c', 'f', low);
  nfa.add_edge(second, 'C', 'F', low);
  add_hexes(nfa, 2, low, to);
}

void add_escapes(Nfa& nfa, int32_t from, int32_t to) {
  const int32_t slash = add_byte(nfa, from, '\\');
  for (const char byte : std::string_view("\"\\/bfnrt")) nfa.add_literal(slash, {&byte, 1}, to);
  const int32_t u = add_byte(nfa, slash, 'u');
  const int32_t rest = nfa.add_state(), after_d = add_d(nfa, u), two = nfa.add_state();
  nfa.add_edge(u, '0', '9', rest);
  for (const char* pair : {"ac", "ef", "AC", "EF"}) nfa.add_edge(u, pair[0], pair[1], rest);
  add_hexes(nfa, 3, rest, to);
  nfa.add_edge(after_d, '0', '7', two);
  add_hexes(nfa, 2, two, to);
  add_surrogate_pair(nfa, after_d, to);
}

/// Quotes around a loop of one character, which `add` makes.
template <class Add>
Fragment add_string(Nfa& nfa, Add add) {
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  const int32_t inside = nfa.add_state();
  nfa.add_edge(whole.start, '"', '"', inside);
  add(inside, inside);
  nfa.add_edge(inside, '"', '"', whole.end);
  return whole;
}

}  // namespace

CodeSet normalized(CodeSet set) {
  std::sort(set.begin(), set.end(), [](CodeRange a, CodeRange b) { return a.low < b.low; });
  CodeSet merged;
  for (const CodeRange range : set) {
    if (!merged.empty() && range.low <= merged.back().high + 1) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

CodeSet complement(const CodeSet& set) {
  CodeSet rest;
  uint32_t next = 0;
  for (const CodeRange range : normalized(set)) {
    if (range.low > next) rest.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

void add_characters(Nfa& nfa, const CodeSet& set, int32_t from, int32_t to) {
  for (const CodeRange range : normalized(set)) {
    for (uint32_t code = range.low; code <= std::min(range.high, 0x5Cu); ++code)
      if (code < 0x20 || code == '"' || code == '\\') nfa.add_literal(from, escape(code), to);
    for (const CodeRange self : kSelfSpelled) add_part(nfa, range, self.low, self.high, from, to);
    add_part(nfa, range, 0x80, 0xD7FF, from, to);
    add_part(nfa, range, 0xE000, kLastCodePoint, from, to);
  }
}

void add_rare_character(Nfa& nfa, int32_t from, int32_t to) {
  add_utf8(nfa, 0x80, 0xD7FF, from, to);
  add_utf8(nfa, 0xE000, kLastCodePoint, from, to);
  add_escapes(nfa, from, to);
}

std::string plain_string(std::string_view text) {
  std::string out = "\"";
  for (const char byte : text) {
    const auto code = static_cast<uint8_t>(byte);
    if (code < 0x20 || byte == '"' || byte == '\\') {
      out += escape(code);
    } else {
      out += byte;
    }
  }
  return out + '"';
}

Fragment add_any_string(Nfa& nfa) {
  return add_string(nfa, [&](int32_t from, int32_t to) {
    for (const CodeRange self : kSelfSpelled)
      nfa.add_edge(from, static_cast<int>(self.low), static_cast<int>(self.high), to);
    add_rare_character(nfa, from, to);
  });
}

Fragment add_plain_string(Nfa& nfa) {
  return add_string(nfa, [&](int32_t from, int32_t to) {
    add_characters(nfa, {{0, kLastCodePoint}}, from, to);
  });
}

}  // namespace switchyard::grammar
