// SPDX-License-Identifier: Apache-2.0
// How much memory this process could still take.
#pragma once
#include <cstdint>
#include <string>

namespace switchyard::engine {

struct HostMemory {
  int64_t total = 0;      ///< bytes of the machine, or of the control group when it grants less
  int64_t available = 0;  ///< what can be taken without swapping, within the control group's limit
};

/// Reads /proc/meminfo, the control group's limit and this process's own size. `root` stands in
/// front of /proc and /sys (tests put a folder there). What cannot be read is 0.
HostMemory host_memory(const std::string& root = "");

}  // namespace switchyard::engine
