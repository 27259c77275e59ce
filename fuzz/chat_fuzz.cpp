// SPDX-License-Identifier: Apache-2.0
// Bodies of calls: any bytes become a call within its limits, or an error object that is JSON and names a known status.
// What a call makes of a text survives the JSON of an answer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "serve/call.h"
#include "serve/http_text.h"
#include "serve/reply_json.h"
#include "serve/tool_reader.h"

namespace {

using namespace switchyard;

void check_tools(const serve::CallTools& tools) {
  SWITCHYARD_CHECK(tools.tools.size() <= serve::kMaxTools, "{} tools", tools.tools.size());
  SWITCHYARD_CHECK(!tools.is_on() || !tools.tools.empty(), "no tools are on");
  for (const auto& tool : tools.tools)
    SWITCHYARD_CHECK(!tool.schema.name.empty(), "a tool without a name");
}

/// The text in pieces, as an answer: what is said and called is the same in one piece, and makes valid chunks.
void check_reader(std::string_view text, serve::ToolReader::Text kind) {
  std::string said[2];
  int calls[2];
  for (const bool whole : {false, true}) {
    serve::ToolReader reader({}, {"f"}, kind);
    std::vector<serve::AnswerPiece> pieces;
    for (size_t at = 0; at < text.size(); at += whole ? text.size() : 1)
      reader.push(text.substr(at, whole ? text.size() : 1), pieces);
    reader.finish(pieces);
    for (const serve::AnswerPiece& piece : pieces) {
      const bool content = piece.kind == serve::AnswerPiece::Kind::content;
      said[whole] += (content ? "" : "(") + piece.text;
    }
    calls[whole] = reader.num_calls();
  }
  SWITCHYARD_CHECK(calls[0] == calls[1], "{} calls, {} in one piece", calls[0], calls[1]);
  std::erase(said[0], '(');
  std::erase(said[1], '(');
  SWITCHYARD_CHECK(said[0] == said[1], "{}\n{}", said[0], said[1]);
}

void check_call(const serve::Call& call) {
  check_tools(call.tools);
  SWITCHYARD_CHECK(!call.prompts.empty() && call.prompts.size() <= serve::kMaxPrompts, "{} prompts",
                   call.prompts.size());
  SWITCHYARD_CHECK(call.n >= 1 && call.n <= serve::kMaxChoices, "n {}", call.n);
  for (const Request& request : call.prompts) {
    SWITCHYARD_CHECK(request.sampling.check().ok(), "sampling that the engine would refuse");
    SWITCHYARD_CHECK(request.messages.size() <= serve::kMaxMessages, "too many messages");
    for (const std::string* json : {&request.chat.tools, &request.chat.template_variables})
      SWITCHYARD_CHECK(json->empty() || parse_json(*json, "chat").ok(), "{}", *json);
    for (const Message& message : request.messages)
      for (const ToolCall& called : message.tool_calls)
        SWITCHYARD_CHECK(parse_json(called.arguments, "arguments").ok(), "{}", called.arguments);
    serve::Choice choice;
    for (const Message& message : request.messages) choice.text += message.content;
    choice.text += request.prompt;
    const std::string answer =
        serve::whole_json({call.endpoint, "id", call.model, 0}, {&choice, 1}, {});
    const auto json = parse_json(answer, "answer");
    SWITCHYARD_CHECK(json.ok(), "{}", answer);
    const Json& first = json->find("choices")->as_array()[0];
    const Json* text = call.endpoint == serve::Endpoint::chat
                           ? first.find("message")->find("content")
                           : first.find("text");
    SWITCHYARD_CHECK(text->as_string() == choice.text, "{}", answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const auto endpoint : {serve::Endpoint::chat, serve::Endpoint::completions}) {
    for (const auto unknown : {serve::UnknownFields::ignored, serve::UnknownFields::refused}) {
      serve::Call call;
      const auto error = serve::parse_call(body, endpoint, {}, unknown, call);
      if (!error) {
        check_call(call);
        continue;
      }
      SWITCHYARD_CHECK(error->status == 400 && !error->code.empty(), "{}", error->message);
      SWITCHYARD_CHECK(parse_json(serve::error_json(*error), "error").ok(), "{}", error->message);
    }
  }
  for (const auto kind : {serve::ToolReader::Text::free, serve::ToolReader::Text::forced})
    check_reader(body, kind);
  if (const auto path = serve::path_of(body))
    SWITCHYARD_CHECK(
        path->find("/../") == std::string::npos && path->find('\0') == std::string::npos, "{}",
        *path);
  return 0;
}
