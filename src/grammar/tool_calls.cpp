// SPDX-License-Identifier: Apache-2.0
// The grammar of outputs that call tools: only calls, calls or JSON, or free text in which a marker begins calls. Free text
// is a walk through the automaton of Knuth, Morris and Pratt (1977) for the marker: states are how much of it was just read.
#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "grammar/characters.h"
#include "grammar/compiler.h"
#include "grammar/grammar.h"

namespace switchyard::grammar {
namespace {

constexpr size_t kMaxTools = 256;

Status check_text(std::string_view text, std::string_view name) {
  if (is_utf8(text)) return {};
  return fail(Code::bad_request, "{} is not valid UTF-8", name);
}

Status check_format(const ToolCallFormat& format, const InsteadOfCalls& instead) {
  for (const std::string* text :
       {&format.begin, &format.call_begin, &format.behind_name, &format.call_end, &format.between,
        &format.end, &format.name_key, &format.arguments_key, &instead.marker})
    SWITCHYARD_TRY(check_text(*text, "a text of the format of tool calls"));
  if (format.name_key == format.arguments_key)
    return fail(Code::bad_request, "name and arguments of a tool call have one key, \"{}\"",
                format.name_key);
  if (!(format.begin + format.call_begin).starts_with(instead.marker))
    return fail(Code::bad_request, "tool calls do not begin with their marker \"{}\"",
                instead.marker);
  return {};
}

Status check_tools(std::span<const Tool> tools) {
  if (tools.empty()) return fail(Code::bad_request, "no tools: expected at least one");
  if (tools.size() > kMaxTools)
    return fail(Code::bad_request, "{} tools, expected at most {}", tools.size(), kMaxTools);
  return {};
}

/// Texts from one state on, as a tree: where hundreds of tools begin alike, one state stands for all of them.
class TextTree {
 public:
  TextTree(Compiler& to, int32_t root) : to_(to), root_(root) {}

  /// The state behind `text`.
  int32_t add(std::string_view text) {
    int32_t at = root_;
    for (const char letter : text) {
      const auto byte = static_cast<uint8_t>(letter);
      int32_t& next = next_[{at, byte}];
      if (next == 0) {
        next = to_.network().add_state();
        to_.network().add_edge(at, byte, byte, next);
      }
      at = next;
    }
    return at;
  }

 private:
  Compiler& to_;
  int32_t root_;
  std::map<std::pair<int32_t, uint8_t>, int32_t>
      next_;  // state 0 is the root of all: never behind a byte
};

Status check_tool(const Tool& tool) {
  if (tool.name.empty()) return fail(Code::bad_request, "a tool without a name");
  return check_text(tool.name, "the name of a tool");
}

int32_t arguments_part(Compiler& to, const Tool& tool) {
  if (tool.parameters.is_null()) return to.any_object();
  return to.part_of({&tool.parameters, &tool.parameters, fmt::format("{}: #", tool.name)});
}

/// NAME behind_name ARGUMENTS, from `first` to `behind`.
Status write_bare_calls(Compiler& to, std::span<const Tool> tools, const ToolCallFormat& format,
                        int32_t first, int32_t behind) {
  TextTree names(to, first);
  for (const Tool& tool : tools) {
    SWITCHYARD_TRY(check_tool(tool));
    to.network().add_call(names.add(tool.name + format.behind_name), arguments_part(to, tool),
                          behind);
  }
  return to.network().check_size();
}

/// From `from`: a mark, maybe a space, and the quote of a string; returns the state behind it.
int32_t add_quote(Compiler& to, int32_t from, char mark) {
  const int32_t quote = to.network().add_state();
  const auto [plain, spaced] = to.add_mark(from, mark);
  for (const int32_t state : {plain, spaced}) to.network().add_edge(state, '"', '"', quote);
  return quote;
}

/// {"name": NAME, "arguments": ARGUMENTS}, from `first` to `behind`.
Status write_object_calls(Compiler& to, std::span<const Tool> tools, const ToolCallFormat& format,
                          int32_t first, int32_t behind) {
  Network& net = to.network();
  TextTree names(to, add_quote(to, to.add_text(first, "{" + plain_string(format.name_key)), ':'));
  for (const Tool& tool : tools) {
    SWITCHYARD_TRY(check_tool(tool));
    const int32_t key = add_quote(to, names.add(plain_string(tool.name).substr(1)), ',');
    const auto [plain, spaced] =
        to.add_mark(to.add_text(key, plain_string(format.arguments_key).substr(1)), ':');
    const int32_t arguments = arguments_part(to, tool), closing = net.add_state();
    for (const int32_t state : {plain, spaced}) net.add_call(state, arguments, closing);
    net.add_edge(closing, '}', '}', behind);
  }
  return net.check_size();
}

/// Calls from `first`, which is behind the first call_begin.
Status write_calls(Compiler& to, std::span<const Tool> tools, const ToolCallFormat& format,
                   int32_t first) {
  Network& net = to.network();
  const int32_t behind = net.add_state();
  const bool bare = !format.behind_name.empty();
  SWITCHYARD_TRY(bare ? write_bare_calls(to, tools, format, first, behind)
                      : write_object_calls(to, tools, format, first, behind));
  const int32_t ended = to.add_text(behind, format.call_end);
  net.state(to.add_text(ended, format.end)).ends = true;
  if (!format.several) return {};
  // From the end of a call to the state behind the first begin, so that several calls are a circle.
  const std::string joint = format.between + format.call_begin;
  if (joint.empty()) return fail(Code::bad_request, "several tool calls need a text between them");
  const int32_t last = to.add_text(ended, std::string_view(joint).substr(0, joint.size() - 1));
  const auto byte = static_cast<uint8_t>(joint.back());
  net.add_edge(last, byte, byte, first);
  return {};
}

/// How many bytes of the marker are read behind `read` of them and one more byte.
size_t next_match(std::string_view marker, size_t read, uint8_t byte) {
  const std::string text = std::string(marker.substr(0, read)) + static_cast<char>(byte);
  for (size_t length = std::min(text.size(), marker.size()); length > 0; --length)
    if (std::string_view(text).substr(text.size() - length) == marker.substr(0, length))
      return length;
  return 0;
}

/// Any text from `start` on, until the marker is complete; returns the state behind it.
int32_t write_text_before(Compiler& to, std::string_view marker, int32_t start) {
  Network& net = to.network();
  std::vector<int32_t> states{start};  // by bytes of the marker that were just read
  while (states.size() <= marker.size()) states.push_back(net.add_state());
  for (size_t read = 0; read < marker.size(); ++read) {
    net.state(states[read]).ends = true;
    for (int low = 0, high = 0; low < 256; low = high) {
      const size_t next = next_match(marker, read, static_cast<uint8_t>(low));
      for (high = low + 1;
           high < 256 && next_match(marker, read, static_cast<uint8_t>(high)) == next;)
        ++high;
      net.add_edge(states[read], low, high - 1, states[next]);
    }
  }
  return states.back();
}

}  // namespace

Result<Grammar> Grammar::tool_calls(std::span<const Tool> tools, const ToolCallFormat& format,
                                    const InsteadOfCalls& instead) {
  SWITCHYARD_TRY(check_tools(tools));
  SWITCHYARD_TRY(check_format(format, instead));
  Compiler compiler;
  Network& net = compiler.network();
  const int32_t root = net.add_state();
  if (instead.any_object) net.add_call(root, compiler.any_object(), compiler.end());
  if (instead.schema != nullptr)
    net.add_call(root, compiler.part_of({instead.schema, instead.schema, "#"}), compiler.end());
  int32_t at = root;
  if (!instead.marker.empty()) at = write_text_before(compiler, instead.marker, root);
  const std::string head = format.begin + format.call_begin;
  at = compiler.add_text(at, std::string_view(head).substr(instead.marker.size()));
  SWITCHYARD_TRY(write_calls(compiler, tools, format, at));
  SWITCHYARD_TRY(compiler.work());
  SWITCHYARD_ASSIGN(Network network, compiler.finish(root));
  return Grammar(std::move(network));
}

}  // namespace switchyard::grammar
