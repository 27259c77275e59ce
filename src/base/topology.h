// SPDX-License-Identifier: Apache-2.0
// The machine's shape as this process may use it: cores, NUMA nodes, caches (hwloc, within the affinity mask and
// the control group's CPU quota).
#pragma once
#include <cstdint>
#include <vector>

namespace switchyard {

struct Topology {
  struct Core {
    int cpu = 0;   ///< operating-system number of one hardware thread of the core
    int node = 0;  ///< NUMA node it belongs to
  };
  std::vector<Core> cores;  ///< one entry per physical core that we may use, node by node
  int num_nodes = 1, num_sockets = 1;
  int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0, memory_bytes = 0;
  int cpu_quota = 0;  ///< whole CPUs that the control group grants; 0 is no limit
};

/// Read once per process; never fails (falls back to one core of node 0).
const Topology& topology();

}  // namespace switchyard
