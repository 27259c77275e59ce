// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions/render: what a chat would be made of, and nothing is generated.
#include "base/json.h"
#include "serve/arrival.h"
#include "serve/prepare.h"
#include "serve/server.h"

namespace switchyard::serve {

void Server::render(Arrival& arrival) {
  const Engine& engine = *engine_.load();
  Call call;
  if (const auto error = parse_call(arrival.request.body, Endpoint::chat, engine.default_sampling(),
                                    options_.unknown_fields, call))
    return answer(arrival, *error);
  if (!call.model.empty())
    if (const auto error = check_model(call.model)) return answer(arrival, *error);
  std::optional<ToolFormat> format;
  if (const auto error = prepare_call(engine, call, format)) return answer(arrival, *error);
  const Request& request = call.prompts.front();
  const auto text = engine.render(request);
  if (!text.ok()) return answer(arrival, template_error(text.error(), Endpoint::chat));
  const auto tokens = engine.tokenize(request);
  if (!tokens.ok()) return answer(arrival, template_error(tokens.error(), Endpoint::chat));
  HttpReply reply;
  JsonWriter json(reply.body);
  json.begin_object().field("prompt", *text).key("tokens").begin_array();
  for (const int32_t token : *tokens) json.integer(token);
  json.end_array().field("count", static_cast<int64_t>(tokens->size()));
  json.field("max_model_len", engine.summary().max_model_len);
  if (format) json.field("tool_format", format->name);
  json.end_object();
  answer(arrival, std::move(reply));
}

}  // namespace switchyard::serve
