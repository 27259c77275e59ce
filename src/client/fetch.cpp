// SPDX-License-Identifier: Apache-2.0
#include "client/fetch.h"

#include <memory>

#include "client/connection.h"
#include "client/resolve.h"

namespace switchyard::client {

Result<Page> fetch(const Target& target, const std::string& path, const std::string& api_key,
                   double timeout_s) {
  boost::asio::io_context context{1};
  SWITCHYARD_ASSIGN(const Endpoints endpoints, resolve(target, context));
  const auto connection = std::make_shared<Connection>(context, endpoints, [](int64_t) {});
  Call call;
  call.text = request_text(target, {path, "", api_key});
  call.timeout_s = timeout_s;
  Outcome outcome;
  connection->send(std::move(call), [&](Outcome&& ended) { outcome = std::move(ended); });
  context.run();
  if (!connection->is_whole())
    return fail(Code::unavailable, "{}{}: {}: {}; is the server there?", target.host_text, path,
                outcome.failure, outcome.detail);
  return Page{connection->status(), connection->body()};
}

Result<Endpoints> resolve(const Target& target, boost::asio::io_context& context) {
  boost::asio::ip::tcp::resolver resolver(context);
  boost::system::error_code error;
  const auto found = resolver.resolve(target.host, std::to_string(target.port), error);
  if (error) return fail(Code::unavailable, "no address for {}: {}", target.host, error.message());
  return Endpoints(found.begin(), found.end());
}

}  // namespace switchyard::client
