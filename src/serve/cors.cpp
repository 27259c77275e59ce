// SPDX-License-Identifier: Apache-2.0
#include "serve/cors.h"

#include <algorithm>

namespace switchyard::serve {
namespace {

/// "authorization, x-stainless-os": tokens of RFC 9110, commas and blanks.
bool is_list_of_names(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

Status Cors::add(std::string origin) {
  any_ |= origin == "*";
  if (origin == "*") return {};
  const size_t scheme = origin.find("://");
  const bool plain = std::all_of(origin.begin(), origin.end(), [](char c) {
    return c > ' ' && c <= '~' && !(c >= 'A' && c <= 'Z') && c != '*' && c != ',';
  });
  if (!plain || scheme == std::string::npos || scheme == 0 || scheme + 3 == origin.size() ||
      origin.find_first_of("/?#@", scheme + 3) != std::string::npos)
    return fail(Code::bad_request,
                "--cors-origin '{}': expected * or an origin without a path, in lower case, as "
                "https://app.example",
                origin);
  origins_.push_back(std::move(origin));
  return {};
}

bool Cors::allows(std::string_view origin) const {
  if (origin.empty()) return false;
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool Cors::is_preflight(const HttpRequest& request) const {
  return request.method == "OPTIONS" && allows(request.header("origin")) &&
         !request.header("access-control-request-method").empty();
}

HttpReply Cors::preflight(const HttpRequest& request) {
  HttpReply reply;
  reply.content_type = "text/plain";
  reply.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                   {"Access-Control-Max-Age", "600"},
                   {"Vary", "Access-Control-Request-Headers"}};
  const std::string_view names = request.header("access-control-request-headers");
  if (!names.empty() && is_list_of_names(names))
    reply.headers.emplace_back("Access-Control-Allow-Headers", names);
  return reply;
}

bool Cors::may_post(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || allows(origin)) return true;
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

void Cors::allow(const HttpRequest& request, HttpReply& reply) const {
  if (!any_ && origins_.empty()) return;
  const std::string_view origin = request.header("origin");
  if (!any_) reply.headers.emplace_back("Vary", "Origin");
  if (!allows(origin)) return;
  reply.headers.emplace_back("Access-Control-Allow-Origin", any_ ? "*" : std::string(origin));
  reply.headers.emplace_back("Access-Control-Expose-Headers",
                             "X-Request-Id, OpenAI-Processing-Ms, Retry-After");
}

}  // namespace switchyard::serve
