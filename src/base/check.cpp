// SPDX-License-Identifier: Apache-2.0
// The end of a broken invariant: one line on the standard error stream, then a core dump.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace switchyard {

void check_failed(const char* file, int line, const char* condition,
                  const std::string& detail) noexcept {
  std::fprintf(stderr, "switchyard: broken invariant at %s:%d: %s %s\n", file, line, condition,
               detail.c_str());
  std::abort();
}

}  // namespace switchyard
