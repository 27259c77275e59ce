// SPDX-License-Identifier: Apache-2.0
// A tree is built first, for a counted part is written out several times.
#include "grammar/pattern.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "grammar/characters.h"

namespace switchyard::grammar {
namespace {

constexpr int kMaxDepth = 32;
constexpr int kMaxCount = 4096;
constexpr int kUnlimited = -1;

struct Node {
  enum class Kind : uint8_t { characters, sequence, choice, repeat } kind = Kind::sequence;
  CodeSet set;                 // of characters
  std::vector<Node> children;  // of the others; repeat has one
  int least = 0, most = 0;     // of repeat
};

const CodeSet kDigits{{'0', '9'}};
const CodeSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeSet kSpace{{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                     {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                     {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodeSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

void append(CodeSet& to, const CodeSet& more) { to.insert(to.end(), more.begin(), more.end()); }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  struct Parsed {
    Node root;
    bool from_start = false, to_end = false;
  };

  Result<Parsed> parse() {
    Parsed parsed;
    parsed.from_start = take('^');
    // An anchor of one alternative alone would belong to it: only whole patterns may have them.
    SWITCHYARD_ASSIGN(parsed.root, choice(0));
    parsed.to_end = take('$');
    if (at_ < text_.size()) return refuse(peek() == ')' ? "a ) without (" : "$ before the end");
    if ((parsed.from_start || parsed.to_end) && parsed.root.kind == Node::Kind::choice)
      return refuse("an anchor beside | without a group: write ^(?:a|b)$");
    return parsed;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(char byte) {
    if (done() || peek() != byte) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view bytes) {
    if (text_.substr(at_, bytes.size()) != bytes) return false;
    at_ += bytes.size();
    return true;
  }
  Error refuse(std::string_view what) const {
    return fail(Code::bad_request, "pattern \"{}\" at byte {}: {} is not supported", text_, at_,
                what);
  }

  Result<Node> choice(int depth) {
    if (depth > kMaxDepth) return refuse(fmt::format("nesting deeper than {}", kMaxDepth));
    Node node;
    node.kind = Node::Kind::choice;
    do {
      SWITCHYARD_ASSIGN(Node child, sequence(depth));
      node.children.push_back(std::move(child));
    } while (take('|'));
    if (node.children.size() == 1) return std::move(node.children.front());
    return node;
  }

  Result<Node> sequence(int depth) {
    Node node;
    while (!done() && peek() != '|' && peek() != ')' && peek() != '$') {
      SWITCHYARD_ASSIGN(Node child, repeated(depth));
      node.children.push_back(std::move(child));
    }
    return node;
  }

  Result<Node> repeated(int depth) {
    SWITCHYARD_ASSIGN(Node part, atom(depth));
    Node node;
    node.kind = Node::Kind::repeat;
    if (take('*')) {
      node.least = 0, node.most = kUnlimited;
    } else if (take('+')) {
      node.least = 1, node.most = kUnlimited;
    } else if (take('?')) {
      node.least = 0, node.most = 1;
    } else if (take('{')) {
      SWITCHYARD_TRY(counts(node));
    } else {
      return part;
    }
    take('?');
    if (!done() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{'))
      return refuse("a quantifier of a quantifier");
    node.children.push_back(std::move(part));
    return node;
  }

  std::optional<int> count() {
    int number = 0;
    const size_t start = at_;
    for (; !done() && peek() >= '0' && peek() <= '9' && number <= kMaxCount; ++at_)
      number = number * 10 + (peek() - '0');
    return at_ == start ? std::nullopt : std::optional(number);
  }

  Status counts(Node& node) {
    const auto least = count();
    if (!least) return refuse("{ without a number (write \\{ for the character)");
    node.least = node.most = *least;
    if (take(',')) node.most = count().value_or(kUnlimited);
    if (!take('}')) return refuse("an unfinished {m,n}, or a count above 4096,");
    if (node.most != kUnlimited && node.most < node.least) return refuse("{m,n} with m above n");
    if (std::max(node.least, node.most) > kMaxCount) return refuse("a count above 4096");
    return {};
  }

  Result<Node> atom(int depth) {
    Node node;
    node.kind = Node::Kind::characters;
    if (take('(')) {
      if (!take("?:") && !done() && peek() == '?') return refuse("(? other than (?:");
      SWITCHYARD_ASSIGN(Node inner, choice(depth + 1));
      if (!take(')')) return refuse("a group without ), or with $ in it,");
      return inner;
    }
    if (take('.')) {
      node.set = complement(kLineEnds);
    } else if (take('[')) {
      SWITCHYARD_ASSIGN(node.set, bracket());
    } else if (take('\\')) {
      SWITCHYARD_ASSIGN(node.set, escape());
    } else if (std::string_view("^*+?{}]").find(peek()) != std::string_view::npos) {
      return refuse(fmt::format("{} in this place", peek()));
    } else {
      SWITCHYARD_ASSIGN(const uint32_t code, character());
      node.set = {{code, code}};
    }
    return node;
  }

  Result<uint32_t> character() {
    size_t skip = 0;
    const std::string_view rest = text_.substr(at_);
    const size_t length = utf8_length(rest, &skip);
    if (length == 0) return refuse("text that is no UTF-8");
    at_ += length;
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(rest[i]));
    };
    constexpr uint32_t kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = byte(0) & kLeadBits[length];
    for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
    return code;
  }

  Result<uint32_t> hex(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const size_t value = done() ? 16 : std::string_view("0123456789abcdefABCDEF").find(peek());
      if (value >= 22) return refuse("a hexadecimal escape that is cut short");
      code = code << 4 | static_cast<uint32_t>(value < 16 ? value : value - 6);
    }
    if (code >= 0xD800 && code <= 0xDFFF) return refuse("half of a surrogate pair");
    return code;
  }

  /// What follows a backslash: a class, or one character.
  Result<CodeSet> escape() {
    if (done()) return refuse("a backslash at the end");
    const char letter = text_[at_++];
    switch (letter) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      default:
        break;
    }
    SWITCHYARD_ASSIGN(const uint32_t code, escaped_character(letter));
    return CodeSet{{code, code}};
  }

  Result<uint32_t> escaped_character(char letter) {
    constexpr std::string_view kControls = "n\nr\rt\tf\fv\v";
    for (size_t i = 0; i < kControls.size(); i += 2)
      if (kControls[i] == letter) return static_cast<uint32_t>(kControls[i + 1]);
    if (letter == 'x') return hex(2);
    if (letter == 'u') return hex(4);
    if (letter == '0' && (done() || peek() < '0' || peek() > '9')) return 0u;
    const bool word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                      (letter >= 'A' && letter <= 'Z');
    if (word) return refuse(fmt::format("\\{}", letter));
    if (static_cast<uint8_t>(letter) < 0x80) return static_cast<uint32_t>(letter);
    --at_;
    return character();
  }

  /// A member of [...]: its first code point, or a whole class.
  Result<CodeSet> member() {
    if (take('\\')) {
      if (take('b')) return CodeSet{{8, 8}};
      return escape();
    }
    SWITCHYARD_ASSIGN(const uint32_t code, character());
    return CodeSet{{code, code}};
  }

  static bool is_single(const CodeSet& set) { return set.size() == 1 && set[0].low == set[0].high; }

  Result<CodeSet> bracket() {
    const bool inverted = take('^');
    CodeSet set;
    while (!done() && peek() != ']') {
      SWITCHYARD_ASSIGN(CodeSet first, member());
      if (text_.size() - at_ >= 2 && peek() == '-' && text_[at_ + 1] != ']') {
        ++at_;
        SWITCHYARD_ASSIGN(const CodeSet last, member());
        if (!is_single(first) || !is_single(last) || last[0].low < first[0].low)
          return refuse("a range in [] that does not rise from one character to another");
        first[0].high = last[0].low;
      }
      append(set, first);
    }
    if (!take(']')) return refuse("[ without ]");
    return inverted ? complement(set) : normalized(std::move(set));
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// Writes the tree out as an automaton.
class Writer {
 public:
  explicit Writer(Nfa& nfa) : nfa_(nfa) {}

  /// From `from` to a state that is returned.
  int32_t write(const Node& node, int32_t from) {
    if (nfa_.too_large()) return from;  // the caller asks, and drops it all
    switch (node.kind) {
      case Node::Kind::characters: {
        const int32_t to = nfa_.add_state();
        add_characters(nfa_, node.set, from, to);
        return to;
      }
      case Node::Kind::sequence:
        for (const Node& child : node.children) from = write(child, from);
        return from;
      case Node::Kind::choice: {
        const int32_t to = nfa_.add_state();
        for (const Node& child : node.children) nfa_.add_free(write(child, branch(from)), to);
        return to;
      }
      case Node::Kind::repeat:
        return write_repeat(node, from);
    }
    return from;
  }

 private:
  /// A new state behind `from`, so that loops inside do not lead back into what stands before.
  int32_t branch(int32_t from) {
    const int32_t next = nfa_.add_state();
    nfa_.add_free(from, next);
    return next;
  }

  int32_t write_repeat(const Node& node, int32_t from) {
    const Node& part = node.children.front();
    for (int i = 0; i < node.least && !nfa_.too_large(); ++i) from = write(part, from);
    const int32_t to = nfa_.add_state();
    nfa_.add_free(from, to);
    if (node.most == kUnlimited) {
      const int32_t start = branch(to);
      nfa_.add_free(write(part, start), to);
      return to;
    }
    for (int i = node.least; i < node.most && !nfa_.too_large(); ++i) {
      from = write(part, branch(from));
      nfa_.add_free(from, to);
    }
    return to;
  }

  Nfa& nfa_;
};

}  // namespace

Result<Fragment> add_pattern_string(Nfa& nfa, std::string_view pattern) {
  SWITCHYARD_ASSIGN(const Parser::Parsed parsed, Parser(pattern).parse());
  const CodeSet all{{0, kLastCodePoint}};
  const Fragment whole{nfa.add_state(), nfa.add_state()};
  const int32_t inside = nfa.add_state();
  nfa.add_edge(whole.start, '"', '"', inside);
  if (!parsed.from_start) add_characters(nfa, all, inside, inside);
  const int32_t first = nfa.add_state();
  nfa.add_free(inside, first);
  const int32_t last = nfa.add_state();
  nfa.add_free(Writer(nfa).write(parsed.root, first), last);
  if (!parsed.to_end) add_characters(nfa, all, last, last);
  nfa.add_edge(last, '"', '"', whole.end);
  if (nfa.too_large()) return Budget::too_many_states();
  return whole;
}

}  // namespace switchyard::grammar
