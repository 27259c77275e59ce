// SPDX-License-Identifier: Apache-2.0
#include "cli/open_files.h"

#include <utility>

#include <sys/resource.h>

namespace switchyard::cli {
namespace {

constexpr size_t kFewFiles = 1024;  // the usual limit, should it not be told

}  // namespace

size_t raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewFiles;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

}  // namespace switchyard::cli
