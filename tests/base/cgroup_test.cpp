// SPDX-License-Identifier: Apache-2.0
// Limits of control groups, from files laid out as Linux does.
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "base/temp_folder.h"

namespace switchyard {
namespace {

TEST(Cgroup, NoFilesAreNoLimit) {
  const TempFolder root;
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory_bytes, 0);
}

TEST(Cgroup, Version2TakesTheTightestOfAllLevels) {
  const TempFolder root;
  root.write("proc/self/cgroup", "0::/pod/box\n");
  root.write("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/pod/box/memory.max", "8000000000\n");
  root.write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  root.write("sys/fs/cgroup/pod/memory.max", "2000000000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 3);
  EXPECT_EQ(limits.memory_bytes, 2'000'000'000);
}

TEST(Cgroup, Version2AtTheMountPoint) {
  const TempFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 2);
}

TEST(Cgroup, PartOfACpuIsOne) {
  const TempFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 1);
}

TEST(Cgroup, Version1HasItsOwnFiles) {
  const TempFolder root;
  root.write("proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n2:cpu,cpuacct:/job\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 4);
  EXPECT_EQ(limits.memory_bytes, int64_t{1} << 30);
}

TEST(Cgroup, UnlimitedAndBrokenFilesAreNoLimit) {
  const TempFolder root;
  root.write("proc/self/cgroup", "nonsense\n2:cpu:/\n:\n0::/\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpu.max", "lots 1e5\n");
  root.write("sys/fs/cgroup/memory.max", "");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.cpus, 0);
  EXPECT_EQ(limits.memory_bytes, 0);
}

}  // namespace
}  // namespace switchyard
