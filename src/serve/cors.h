// SPDX-License-Identifier: Apache-2.0
// Cors: which pages of other origins a browser lets read our answers. None, unless named.
// Source: Fetch Standard, "CORS protocol". Keys go in a header, never in cookies, so credentials are not allowed.
#pragma once
#include <string>
#include <vector>

#include "serve/http.h"

namespace switchyard::serve {

class Cors {
 public:
  /// "*", or an origin as browsers send it: "https://app.example:8443". Errors: Code::bad_request.
  Status add(std::string origin);

  /// A browser asks before it sends the real request.
  bool is_preflight(const HttpRequest& request) const;
  /// Lets it send the headers that it asks for: a key in one of them opens nothing that the caller does not have already.
  static HttpReply preflight(const HttpRequest& request);
  /// Whether a request that changes something may come from where it comes from: not from a page of an origin that is not
  /// ours and was not named. Browsers send some of those without a preflight.
  bool may_post(const HttpRequest& request) const;
  /// Adds what lets the request's origin read the answer, if it may.
  void allow(const HttpRequest& request, HttpReply& reply) const;

 private:
  bool allows(std::string_view origin) const;

  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace switchyard::serve
