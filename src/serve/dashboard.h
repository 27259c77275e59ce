// SPDX-License-Identifier: Apache-2.0
// The dashboard: a page of three files, embedded in the program (src/serve/dashboard, made into dashboard_files.cpp by
// cmake/embed.cmake). It holds no data: what it shows it asks from the other endpoints, with the key that a person gives.
#pragma once
#include <span>
#include <string_view>

#include "serve/http.h"

namespace switchyard::serve {

struct DashboardFile {
  const char* path;  ///< "/", "/dashboard/charts.js"
  const char* content_type;
  std::string_view text;
};

std::span<const DashboardFile> dashboard_files();

/// The file of that path, with headers that let it load from this server alone. Only for paths of dashboard_files().
HttpReply dashboard_reply(std::string_view path);

}  // namespace switchyard::serve
