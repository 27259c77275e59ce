// SPDX-License-Identifier: Apache-2.0
#include "client/answer.h"

#include <algorithm>

#include <fmt/format.h>

namespace switchyard::client {
namespace {

constexpr size_t kMaxDetail = 300, kMaxCode = 60;

std::string clipped(std::string_view text) {
  return std::string(text.substr(0, kMaxDetail)) + (text.size() > kMaxDetail ? "..." : "");
}

std::string text_of(const Json& json, std::string_view name) {
  const Json* const found = json.find(name);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}

bool has_text(const Json& json, std::string_view name) { return !text_of(json, name).empty(); }

int64_t count_of(const Json& json, std::string_view name) {
  const Json* const found = json.find(name);
  return found != nullptr && found->is_integer() ? std::max<int64_t>(found->as_int(), 0) : 0;
}

/// Short and plain, since kinds are counted and shown: what a server says may be neither.
std::string plain(std::string_view code) {
  std::string out(code.substr(0, kMaxCode));
  for (char& c : out)
    if (c <= ' ' || c > '~') c = '_';
  return out;
}

/// Code and message of an error object; also where `error` is a plain string, and where the code is a number.
struct ErrorText {
  std::string code, message;
};
ErrorText error_text(const Json& error) {
  if (error.is_string()) return {"", error.as_string()};
  ErrorText text{text_of(error, "code"), text_of(error, "message")};
  if (text.code.empty()) text.code = text_of(error, "type");
  text.code = plain(text.code);
  return text;
}

}  // namespace

bool AnswerReader::take(std::string_view data, int64_t now_ns) {
  if (outcome_.first_event_ns == 0) outcome_.first_event_ns = now_ns;
  if (data == "[DONE]") {
    end_of_stream();
    return false;
  }
  const auto event = parse_json(data, "event");
  if (!event.ok() || !event->is_object()) {
    fail("malformed event", clipped(data));
    return false;
  }
  if (const Json* const error = event->find("error"); error != nullptr && !error->is_null()) {
    const ErrorText text = error_text(*error);
    fail(text.code.empty() ? "error event" : "error event " + text.code, text.message);
    return false;
  }
  if (const Json* const usage = event->find("usage"); usage != nullptr && usage->is_object())
    take_usage(*usage);
  const Json* const choices = event->find("choices");
  if (choices == nullptr || !choices->is_array()) {
    fail("malformed event", "no choices: " + clipped(data));
    return false;
  }
  return take_choices(choices->as_array(), now_ns);
}

void AnswerReader::take_usage(const Json& usage) {
  outcome_.has_usage = true;
  outcome_.prompt_tokens = count_of(usage, "prompt_tokens");
  outcome_.output_tokens = count_of(usage, "completion_tokens");
}

bool AnswerReader::take_choices(const Json::Array& choices, int64_t now_ns) {
  if (!choices.empty()) outcome_.last_choice_ns = now_ns;
  for (const Json& choice : choices) {
    const Json* const delta = choice.find("delta");
    const bool text = delta != nullptr
                          ? has_text(*delta, "content") || has_text(*delta, "reasoning_content")
                          : has_text(choice, "text");
    if (text) add_text(now_ns);
    finished_ |= has_text(choice, "finish_reason");
  }
  return true;
}

void AnswerReader::add_text(int64_t now_ns) {
  if (outcome_.first_text_ns == 0) outcome_.first_text_ns = now_ns;
  if (outcome_.last_text_ns != 0)
    outcome_.gaps_s.push_back(static_cast<float>(now_ns - outcome_.last_text_ns) * 1e-9f);
  outcome_.last_text_ns = now_ns;
  ++outcome_.text_events;
}

void AnswerReader::end_of_stream() {
  if (!finished_) return fail("unfinished", "the stream ended without a finish_reason");
  outcome_.end = Outcome::End::answered;
}

void AnswerReader::fail(std::string_view kind, std::string_view detail) {
  outcome_.end = Outcome::End::failed;
  outcome_.failure = kind;
  outcome_.detail = clipped(detail);
}

void describe_refusal(int status, std::string_view body, Outcome& outcome) {
  outcome.end = status == 429 ? Outcome::End::turned_away : Outcome::End::failed;
  outcome.failure = fmt::format("http {}", status);
  outcome.detail = clipped(body);
  if (status == 200) {
    outcome.failure = "not a stream";
    return;
  }
  const auto json = parse_json(body, "answer");
  const Json* const error = json.ok() ? json->find("error") : nullptr;
  if (error == nullptr) return;
  const ErrorText text = error_text(*error);
  if (!text.code.empty()) outcome.failure += " " + text.code;
  if (!text.message.empty()) outcome.detail = clipped(text.message);
}

}  // namespace switchyard::client
