// SPDX-License-Identifier: Apache-2.0
// `switchyard stats URL`: asks a running server again and again, and shows what its experts do.
#pragma once
#include <string>

#include "cli/exit_code.h"

namespace switchyard::cli {

struct LiveOptions {
  std::string url, key;
  bool once = false, json = false;
  double interval_s = 1;
};

/// On a terminal a screen that renews itself until Ctrl-C; else, or with `once`, one block of text after one interval,
/// which its rates are taken over, all other numbers since the server's start.
ExitCode watch_server(const LiveOptions& options);

}  // namespace switchyard::cli
