// SPDX-License-Identifier: Apache-2.0
// Arrival: a request that has come in, with what its answer needs.
#pragma once
#include <memory>
#include <string>

#include "serve/http.h"
#include "serve/request_record.h"
#include "serve/server.h"

namespace switchyard::serve {

struct Server::Arrival {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::string id;     ///< x-request-id: the client's, or ours
  double wait_s = 0;  ///< of a caller who is over the rate: Retry-After
  /// What the log and the metrics will say of it; shared with its exchange.
  std::shared_ptr<RequestRecord> record = std::make_shared<RequestRecord>();
};

/// The answer to a call that comes too late.
ApiError draining();
/// 32 hexadecimal digits that no other call has.
std::string new_id();

}  // namespace switchyard::serve
