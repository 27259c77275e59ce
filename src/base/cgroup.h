// SPDX-License-Identifier: Apache-2.0
// What the control group grants this process (containers set their CPU and memory limits there).
#pragma once
#include <cstdint>
#include <string>

namespace switchyard {

struct CgroupLimits {
  int cpus = 0;              ///< whole CPUs, rounded down but at least 1; 0 is no limit
  int64_t memory_bytes = 0;  ///< 0 is no limit
};

/// Reads version 2 and version 1 groups, the tightest of the process's group and all groups around it.
/// `root` stands in front of /proc and /sys (tests put a folder there). Unreadable files count as no limit.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace switchyard
