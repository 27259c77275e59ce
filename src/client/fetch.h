// SPDX-License-Identifier: Apache-2.0
// fetch: one GET, waited for.
#pragma once
#include <string>

#include "client/target.h"

namespace switchyard::client {

struct Page {
  int status = 0;
  std::string body;
};

/// Errors: Code::unavailable when there is no server, or no whole answer within the time.
Result<Page> fetch(const Target& target, const std::string& path, const std::string& api_key,
                   double timeout_s = 10);

}  // namespace switchyard::client
