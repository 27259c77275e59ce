// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

#include "base/json.h"

namespace switchyard::serve {
namespace {

const char* error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

struct Mapping {
  int status;
  const char* code;
};

Mapping mapping(Code code) {
  switch (code) {
    case Code::bad_request:
      return {400, "invalid_value"};
    case Code::bad_file:
      return {400, "invalid_value"};
    case Code::unsupported:
      return {400, "unsupported_parameter"};  // clients repeat a 501
    case Code::out_of_memory:
      return {503, "out_of_memory"};
    case Code::unavailable:
      return {503, "draining"};
    case Code::cancelled:
      return {503, "cancelled"};
    case Code::device:
      return {500, "internal_error"};
    case Code::internal:
      return {500, "internal_error"};
    case Code::overloaded:
      return {429, "queue_tokens_full"};
    case Code::deadline:
      return {504, "deadline_exceeded"};
  }
  return {500, "internal_error"};
}

}  // namespace

ApiError api_error(const Error& error) {
  const Mapping to = mapping(error.code);
  return {to.status, to.code, error.message, ""};
}

std::string error_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error_type(error.status));
  json.key("param");
  error.param.empty() ? json.null() : json.string(error.param);
  json.field("code", error.code);
  json.end_object().end_object();
  return out;
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = error_json(error);
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace switchyard::serve
