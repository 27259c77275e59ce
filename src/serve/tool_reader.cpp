// SPDX-License-Identifier: Apache-2.0
#include "serve/tool_reader.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "serve/call_text.h"

namespace switchyard::serve {
namespace {

/// Of one answer: beyond it, markers are content. Each failure reads again what it held back.
constexpr int kMaxFailures = 64;
/// More white space than that in a row is content, also before a call: a client should not wait for all of it.
constexpr size_t kMaxBlank = 256;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_space(c)) out += c;
  return out;
}

/// The text that follows an opened object's beginning, so that the beginning can be read as JSON.
std::string member_of(const std::string& object, const char* name) {
  const auto json = parse_json(object, "call");
  const Json* const found = json.ok() ? json->find(name) : nullptr;
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

/// Also with integers that no 64 bits hold.
Result<Json> parse_call(const std::string& text) {
  auto json = parse_json(text, "call");
  return json.ok() ? std::move(json) : parse_json(with_long_integers_as_reals(text), "call");
}

/// Arguments as an object, as they stand in `object`; some models write them as a string that holds one.
bool arguments_text(const Json& call, std::string_view object, std::string& text) {
  const Json* arguments = call.find("arguments");
  if (arguments == nullptr) arguments = call.find("parameters");
  if (arguments == nullptr || arguments->is_null()) {
    text = "{}";
    return true;
  }
  if (arguments->is_string()) {
    const auto inner = parse_call(arguments->as_string());
    text = arguments->as_string();
    return inner.ok() && inner->is_object();
  }
  text = member_text(object, call.find("arguments") == nullptr ? "parameters" : "arguments");
  if (text.empty()) JsonWriter(text).value(*arguments);  // a key that is written with escapes
  return arguments->is_object();
}

}  // namespace

ToolReader::ToolReader(ToolFormat format, std::vector<std::string> names, Text text)
    : format_(std::move(format)), names_(std::move(names)), text_(text) {}

bool ToolReader::knows(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void ToolReader::push(std::string_view text, std::vector<AnswerPiece>& out) {
  for (const char byte : text) push_byte(byte, out);
  send_arguments(out);
}

void ToolReader::push_byte(char byte, std::vector<AnswerPiece>& out) {
  if (state_ != State::said) raw_ += byte;
  switch (state_) {
    case State::said:
      return say(byte, out);
    case State::head:
    case State::tail:
      return read_expected(byte, out);
    case State::name:
      return read_name(byte, out);
    case State::call:
      return read_call(byte, out);
  }
}

/// Holds back white space and the beginning of a marker; a whole marker begins a call.
void ToolReader::say(char byte, std::vector<AnswerPiece>& out) {
  held_ += byte;
  const std::string& marker = format_.marker;
  if (failures_ < kMaxFailures && held_ == marker) {
    // White space before a call is none of the content: it waits until there is a call.
    raw_ = std::exchange(blank_, {}) + std::exchange(held_, {});
    no_call_in_ = raw_.size();
    state_ = State::head;
    const std::string head = without_spaces(format_.begin + format_.call_begin);
    expect({{head, without_spaces(marker).size(), State::call}});
    return;
  }
  size_t certain = 0;
  while (certain < held_.size() && !marker.starts_with(std::string_view(held_).substr(certain)))
    say_certain(held_[certain++], out);
  held_.erase(0, certain);
}

/// Of a byte that begins no marker; each is touched once.
void ToolReader::say_certain(char byte, std::vector<AnswerPiece>& out) {
  blank_ += byte;
  if (!is_space(byte) || blank_.size() == kMaxBlank) flush_blank(out);
}

void ToolReader::flush_blank(std::vector<AnswerPiece>& out) {
  const std::string text = std::exchange(blank_, {});
  if (text.empty()) return;
  said_ = true;
  if (!out.empty() && out.back().kind == AnswerPiece::Kind::content)
    out.back().text += text;
  else
    out.push_back({AnswerPiece::Kind::content, text});
}

void ToolReader::expect(std::vector<Expected> texts) {
  expected_ = std::move(texts);
  for (const Expected& text : expected_) {
    if (text.read < text.text.size()) continue;
    state_ = text.next;
    if (state_ == State::call) begin_call();
    return;
  }
}

void ToolReader::read_expected(char byte, std::vector<AnswerPiece>& out) {
  if (is_space(byte)) return;
  std::erase_if(expected_, [&](Expected& text) { return text.text[text.read++] != byte; });
  if (expected_.empty()) return give_up(out);
  for (const Expected& text : expected_) {
    if (text.read < text.text.size()) continue;
    state_ = text.next;
    if (state_ == State::said) raw_.clear();
    if (state_ == State::call) begin_call();
    return;
  }
}

void ToolReader::begin_call() {
  object_.clear();
  name_.clear();
  arguments_.clear();
  depth_ = 0;
  key_at_ = 0;
  in_string_ = escaped_ = in_arguments_ = false;
  state_ = is_bare() ? State::name : State::call;
}

/// A bare name, up to what stands behind it.
void ToolReader::read_name(char byte, std::vector<AnswerPiece>& out) {
  name_ += byte;
  const std::string& behind = format_.behind_name;
  if (!name_.ends_with(behind)) {
    if (name_.size() > behind.size() + 256) give_up(out);
    return;
  }
  name_.resize(name_.size() - behind.size());
  if (!knows(name_)) return give_up(out);
  state_ = State::call;
  if (text_ == Text::free) return;
  open(name_, out);
  in_arguments_ = true;
}

/// One byte of a JSON object.
void ToolReader::read_call(char byte, std::vector<AnswerPiece>& out) {
  if (depth_ == 0 && is_space(byte)) return;
  if (depth_ == 0 && byte != '{') return give_up(out);
  const bool starts_string = !in_string_ && byte == '"';
  object_ += byte;
  if (in_string_) {
    if (escaped_)
      escaped_ = false;
    else if (byte == '\\')
      escaped_ = true;
    else if (byte == '"')
      in_string_ = false;
  } else if (byte == '"') {
    in_string_ = true;
  } else if (byte == '{' || byte == '[') {
    ++depth_;
  } else if (byte == '}' || byte == ']') {
    --depth_;
  }
  if (text_ == Text::forced) {
    if (starts_string && depth_ == 1 && !in_arguments_) key_at_ = object_.size() - 1;
    if (!find_arguments(byte, out)) return give_up(out);
  }
  if (depth_ == 0) end_call(out);
}

/// The grammar writes {"name": NAME, "arguments": ARGUMENTS}. False when it was no grammar that wrote this.
bool ToolReader::find_arguments(char byte, std::vector<AnswerPiece>& out) {
  const bool closes = !is_bare() && depth_ == 0;
  if (in_arguments_) {
    const bool between = !is_bare() && depth_ == 1 && !in_string_ && is_space(byte);
    if (!closes && !between) arguments_ += byte;
    return true;
  }
  if (byte != ':' || depth_ != 1 || in_string_) return true;
  if (!std::string_view(object_).substr(key_at_).starts_with("\"arguments\"")) return true;
  std::string name = member_of(object_ + "null}", "name");
  if (!knows(name)) return false;
  open(std::move(name), out);
  return in_arguments_ = true;
}

void ToolReader::open(std::string name, std::vector<AnswerPiece>& out) {
  raw_.clear();
  no_call_in_ = 0;
  out.push_back({AnswerPiece::Kind::call, std::move(name), num_calls_++});
}

void ToolReader::send_arguments(std::vector<AnswerPiece>& out) {
  if (arguments_.empty()) return;
  out.push_back({AnswerPiece::Kind::arguments, std::exchange(arguments_, {}), num_calls_ - 1});
}

void ToolReader::end_call(std::vector<AnswerPiece>& out) {
  if (text_ == Text::free && !take_whole(out)) return give_up(out);
  if (text_ == Text::forced && !in_arguments_) return give_up(out);
  if (text_ == Text::forced) send_arguments(out);
  in_arguments_ = false;
  behind_call();
}

/// The object is complete: a call of a function that is known, or none.
bool ToolReader::take_whole(std::vector<AnswerPiece>& out) {
  const auto json = parse_call(object_);
  if (!json.ok()) return false;
  std::string arguments;
  if (is_bare()) {
    arguments = object_;
  } else {
    const Json* const name = json->find("name");
    if (name == nullptr || !name->is_string() || !knows(name->as_string())) return false;
    name_ = name->as_string();
    if (!arguments_text(*json, object_, arguments)) return false;
  }
  open(name_, out);
  arguments_ = std::move(arguments);
  send_arguments(out);
  return true;
}

/// The end of this call, then another one, or the end of all.
void ToolReader::behind_call() {
  raw_.clear();
  state_ = State::tail;
  const std::string end = without_spaces(format_.call_end);
  if (format_.end.empty()) return expect({{end, 0, State::said}});
  const std::string next = without_spaces(format_.between + format_.call_begin);
  std::vector<Expected> texts{{end + without_spaces(format_.end), 0, State::said}};
  if (!next.empty()) texts.push_back({end + next, 0, State::call});
  expect(std::move(texts));
}

/// What was held back is no call: it is content, but for what may begin in it.
void ToolReader::give_up(std::vector<AnswerPiece>& out) {
  const std::string text = std::exchange(raw_, {});
  // The marker at least is content, with the white space before it, so that this comes to an end.
  const size_t first = std::exchange(no_call_in_, 0);
  state_ = State::said;
  ++failures_;
  for (const char byte : std::string_view(text).substr(0, first)) say_certain(byte, out);
  for (const char byte : std::string_view(text).substr(first)) push_byte(byte, out);
}

void ToolReader::finish(std::vector<AnswerPiece>& out) {
  send_arguments(out);
  is_cut_ = in_arguments_;
  // The head of a call that was all that was asked for is not said.
  if (text_ == Text::forced && !said_ && num_calls_ == 0 && state_ != State::said) return;
  // A call that is not whole is content; one that is, or goes out already, has only lost its end.
  while (state_ == State::head || state_ == State::name ||
         (state_ == State::call && !in_arguments_))
    give_up(out);
  if (state_ != State::said || (held_.empty() && num_calls_ > 0)) return;
  blank_ += std::exchange(held_, {});
  flush_blank(out);
}

}  // namespace switchyard::serve
