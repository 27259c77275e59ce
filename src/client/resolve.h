// SPDX-License-Identifier: Apache-2.0
// resolve: the addresses of a target's name.
#pragma once
#include "client/connection.h"
#include "client/target.h"

namespace switchyard::client {

/// Errors: Code::unavailable.
Result<Endpoints> resolve(const Target& target, boost::asio::io_context& context);

}  // namespace switchyard::client
