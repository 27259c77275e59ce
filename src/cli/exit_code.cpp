// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_code.h"

#include <cstdio>

namespace switchyard::cli {

ExitCode report(const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "switchyard: %s\n", error.message.c_str());
  return exit_code(error.code);
}

}  // namespace switchyard::cli
