// SPDX-License-Identifier: Apache-2.0
#include "serve/cors.h"

#include <algorithm>

namespace switchyard::serve {

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

HttpReply Cors::preflight() {
  HttpReply reply;
  reply.content_type = "text/plain";
  reply.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                   {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id"},
                   {"Access-Control-Max-Age", "600"}};
  return reply;
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
