// SPDX-License-Identifier: Apache-2.0
// Reads hwloc once and keeps plain numbers. hwloc already leaves out what the cpuset controller forbids; the affinity
// mask (taskset, mpirun) and the CPU quota are added here.
#include "base/topology.h"

#include <algorithm>

#include <hwloc.h>

#include "base/cgroup.h"

namespace switchyard {
namespace {

/// Owns a loaded hwloc topology, or none when it could not be loaded.
class Machine {
 public:
  Machine() {
    if (hwloc_topology_init(&topology_) != 0) topology_ = nullptr;
    if (topology_ != nullptr && hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      topology_ = nullptr;
    }
    usable_ = hwloc_bitmap_alloc();
    if (!ok()) return;
    if (hwloc_get_cpubind(topology_, usable_, HWLOC_CPUBIND_PROCESS) != 0 ||
        hwloc_bitmap_iszero(usable_)) {
      hwloc_bitmap_copy(usable_, hwloc_topology_get_allowed_cpuset(topology_));
    }
    hwloc_bitmap_and(usable_, usable_, hwloc_topology_get_allowed_cpuset(topology_));
  }
  ~Machine() {
    hwloc_bitmap_free(usable_);
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  bool ok() const { return topology_ != nullptr && usable_ != nullptr; }
  hwloc_topology_t get() const { return topology_; }

  /// The first hardware thread of the object that we may use, or -1.
  int first_cpu(hwloc_obj_t object) const {
    if (object->cpuset == nullptr) return -1;
    int cpu = -1;
    while ((cpu = hwloc_bitmap_next(object->cpuset, cpu)) >= 0) {
      if (hwloc_bitmap_isset(usable_, static_cast<unsigned>(cpu)) != 0) return cpu;
    }
    return -1;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
  hwloc_bitmap_t usable_ = nullptr;
};

int node_of(hwloc_obj_t object) {
  const int node = object->nodeset != nullptr ? hwloc_bitmap_first(object->nodeset) : -1;
  return std::max(node, 0);
}

/// Cores, or hardware threads on machines that do not tell their cores.
void read_cores(const Machine& machine, Topology& found) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_PU}) {
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(machine.get(), type, object)) != nullptr) {
      const int cpu = machine.first_cpu(object);
      if (cpu >= 0) found.cores.push_back({cpu, node_of(object)});
    }
    if (!found.cores.empty()) break;
  }
  std::stable_sort(found.cores.begin(), found.cores.end(),
                   [](const auto& a, const auto& b) { return a.node < b.node; });
}

int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  if (cache == nullptr || cache->attr == nullptr) return 0;
  return static_cast<int64_t>(cache->attr->cache.size);
}

Topology read_topology() {
  Topology found;
  const CgroupLimits limits = read_cgroup_limits();
  const Machine machine;
  if (machine.ok()) {
    read_cores(machine, found);
    found.num_nodes = std::max(1, hwloc_get_nbobjs_by_type(machine.get(), HWLOC_OBJ_NUMANODE));
    found.num_sockets = std::max(1, hwloc_get_nbobjs_by_type(machine.get(), HWLOC_OBJ_PACKAGE));
    found.l1d_bytes = cache_bytes(machine.get(), HWLOC_OBJ_L1CACHE);
    found.l2_bytes = cache_bytes(machine.get(), HWLOC_OBJ_L2CACHE);
    found.l3_bytes = cache_bytes(machine.get(), HWLOC_OBJ_L3CACHE);
    found.memory_bytes = static_cast<int64_t>(hwloc_get_root_obj(machine.get())->total_memory);
  }
  if (found.cores.empty()) found.cores.push_back({0, 0});
  found.cpu_quota = limits.cpus;
  if (limits.memory_bytes > 0 &&
      (found.memory_bytes == 0 || limits.memory_bytes < found.memory_bytes)) {
    found.memory_bytes = limits.memory_bytes;
  }
  return found;
}

}  // namespace

const Topology& topology() {
  static const Topology found = read_topology();
  return found;
}

}  // namespace switchyard
