// SPDX-License-Identifier: Apache-2.0
// What systemd is told of a service of Type=notify: that it is ready, that it is on its way out.
// Source: sd_notify(3): one datagram to the socket that $NOTIFY_SOCKET names; a name that begins with @ is abstract.
#pragma once
#include <string_view>

namespace switchyard::cli {

/// "READY=1", say. Nothing happens where nobody asked for it; a message that cannot be sent is lost.
void notify_service(std::string_view message);

}  // namespace switchyard::cli
