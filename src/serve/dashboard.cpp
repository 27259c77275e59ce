// SPDX-License-Identifier: Apache-2.0
#include "serve/dashboard.h"

#include "base/check.h"

namespace switchyard::serve {

HttpReply dashboard_reply(std::string_view path) {
  HttpReply reply;
  for (const DashboardFile& file : dashboard_files()) {
    if (path != file.path) continue;
    reply.content_type = file.content_type;
    reply.body = file.text;
  }
  SWITCHYARD_CHECK(!reply.body.empty(), "no page {}", path);
  reply.headers.emplace_back("Content-Security-Policy",
                             "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'");
  reply.headers.emplace_back("X-Content-Type-Options", "nosniff");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("Cache-Control", "no-cache");
  return reply;
}

}  // namespace switchyard::serve
