// SPDX-License-Identifier: Apache-2.0
// Source: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max) and cgroup-v1 (cpu.cfs_quota_us,
// memory.limit_in_bytes).
#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/files.h"

namespace switchyard {
namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

std::string read_or_empty(const std::string& path) {
  if (!file_exists(path)) return {};
  Result<std::string> text = read_text_file(path, kMaxFileBytes);
  return text.ok() ? *std::move(text) : std::string();
}

/// Takes the next word of `text`.
std::string_view take_word(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
  const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

/// A positive number, or 0 for anything else ("max", "-1", nothing).
int64_t positive(std::string_view word) {
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && rest == word.data() + word.size() && number > 0 ? number : 0;
}

/// The smaller of two limits of which 0 is none.
template <class T>
T tighter(T a, T b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

int whole_cpus(std::string_view quota_us, std::string_view period_us) {
  const int64_t quota = positive(quota_us), period = positive(period_us);
  if (quota == 0 || period == 0) return 0;
  return static_cast<int>(std::clamp<int64_t>(quota / period, 1, 1 << 20));
}

int64_t memory_limit(std::string_view text) {
  const int64_t bytes = positive(take_word(text));
  // Version 1 writes "no limit" as the largest page-aligned number.
  return bytes >= int64_t{1} << 60 ? 0 : bytes;
}

/// Calls visit(folder) for the group and for each group around it, up to the mount point.
template <class Visit>
void walk_up(const std::string& mount, std::string group, Visit visit) {
  while (true) {
    visit(mount + group);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

void add_version_2(const std::string& root, const std::string& group, CgroupLimits& limits) {
  walk_up(root + "/sys/fs/cgroup", group, [&](const std::string& folder) {
    const std::string cpu = read_or_empty(folder + "/cpu.max");
    std::string_view words = cpu;
    const std::string_view quota = take_word(words), period = take_word(words);
    limits.cpus = tighter(limits.cpus, whole_cpus(quota, period));
    limits.memory_bytes =
        tighter(limits.memory_bytes, memory_limit(read_or_empty(folder + "/memory.max")));
  });
}

void add_version_1(const std::string& root, std::string_view controllers, const std::string& group,
                   CgroupLimits& limits) {
  const std::string sys = root + "/sys/fs/cgroup/";
  const std::string listed = "," + std::string(controllers) + ",";
  if (listed.find(",cpu,") != std::string::npos) {
    walk_up(sys + "cpu", group, [&](const std::string& folder) {
      const std::string quota = read_or_empty(folder + "/cpu.cfs_quota_us");
      const std::string period = read_or_empty(folder + "/cpu.cfs_period_us");
      std::string_view quota_text = quota, period_text = period;
      limits.cpus = tighter(limits.cpus, whole_cpus(take_word(quota_text), take_word(period_text)));
    });
  }
  if (listed.find(",memory,") != std::string::npos) {
    walk_up(sys + "memory", group, [&](const std::string& folder) {
      limits.memory_bytes = tighter(limits.memory_bytes,
                                    memory_limit(read_or_empty(folder + "/memory.limit_in_bytes")));
    });
  }
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::string text = read_or_empty(root + "/proc/self/cgroup");
  std::string_view rest = text;
  while (!rest.empty()) {
    // One line is hierarchy:controllers:/path; version 2 has hierarchy 0 and no controllers.
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string group(line.substr(second + 1));
    if (group == "/") group.clear();
    if (controllers.empty()) {
      add_version_2(root, group, limits);
    } else {
      add_version_1(root, controllers, group, limits);
    }
  }
  return limits;
}

}  // namespace switchyard
