// SPDX-License-Identifier: Apache-2.0
#include "engine/host_memory.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/cgroup.h"
#include "base/files.h"

namespace switchyard::engine {
namespace {

constexpr uint64_t kMaxProcBytes = uint64_t{1} << 20;

/// The number behind "Key:" in lines of "Key:   12345 kB", as bytes; 0 when it is not there.
int64_t read_kib_field(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return 0;
  const size_t digit = text.find_first_of("0123456789", at + key.size());
  if (digit == std::string_view::npos) return 0;
  int64_t kib = 0;
  std::from_chars(text.data() + digit, text.data() + text.size(), kib);
  return kib * 1024;
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  HostMemory memory;
  const auto meminfo = read_text_file(root + "/proc/meminfo", kMaxProcBytes);
  if (!meminfo.ok()) return memory;
  memory.total = read_kib_field(*meminfo, "MemTotal:");
  memory.available = read_kib_field(*meminfo, "MemAvailable:");
  const int64_t limit = read_cgroup_limits(root).memory_bytes;
  if (limit <= 0) return memory;
  // The group's own count includes cached files, which give way; this process's size is the part
  // that does not.
  const auto status = read_text_file(root + "/proc/self/status", kMaxProcBytes);
  const int64_t own = status.ok() ? read_kib_field(*status, "RssAnon:") : 0;
  memory.total = std::min(memory.total, limit);
  memory.available = std::min(memory.available, std::max<int64_t>(limit - own, 0));
  return memory;
}

}  // namespace switchyard::engine
