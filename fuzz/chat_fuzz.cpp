// SPDX-License-Identifier: Apache-2.0
// Bodies of calls: any bytes become a call within its limits, or an error object that is JSON and names a known status.
// What a call makes of a text survives the JSON of an answer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "serve/call.h"
#include "serve/http_text.h"
#include "serve/reply_json.h"

namespace {

using namespace switchyard;

void check_call(const serve::Call& call) {
  SWITCHYARD_CHECK(!call.prompts.empty() && call.prompts.size() <= serve::kMaxPrompts, "{} prompts",
                   call.prompts.size());
  SWITCHYARD_CHECK(call.n >= 1 && call.n <= serve::kMaxChoices, "n {}", call.n);
  for (const Request& request : call.prompts) {
    SWITCHYARD_CHECK(request.sampling.check().ok(), "sampling that the engine would refuse");
    SWITCHYARD_CHECK(request.messages.size() <= serve::kMaxMessages, "too many messages");
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
  if (const auto path = serve::path_of(body))
    SWITCHYARD_CHECK(
        path->find("/../") == std::string::npos && path->find('\0') == std::string::npos, "{}",
        *path);
  return 0;
}
