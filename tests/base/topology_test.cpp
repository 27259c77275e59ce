// SPDX-License-Identifier: Apache-2.0
// The machine as we may use it: real cores, once each, within the affinity mask.
#include "base/topology.h"

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>
#include <sched.h>

namespace switchyard {
namespace {

TEST(Topology, CoresAreOursAndDistinct) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::set<int> seen;
  int last_node = 0;
  for (const Topology::Core& core : topology().cores) {
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(core.cpu), &allowed)) << core.cpu;
    EXPECT_TRUE(seen.insert(core.cpu).second) << core.cpu << " twice";
    EXPECT_GE(core.node, last_node);  // node by node
    last_node = core.node;
  }
  EXPECT_GE(seen.size(), 1u);
  EXPECT_LE(static_cast<int>(seen.size()), CPU_COUNT(&allowed));
}

TEST(Topology, NumbersMakeSense) {
  EXPECT_GE(topology().num_nodes, 1);
  EXPECT_GE(topology().num_sockets, 1);
  EXPECT_GT(topology().memory_bytes, int64_t{1} << 26);
  EXPECT_GE(topology().cpu_quota, 0);
}

TEST(TopologyDeathTest, HonoursTheAffinityMask) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a fresh process: nothing is cached yet
  EXPECT_EXIT(
      {
        const int cpu = ::sched_getcpu();
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<size_t>(cpu), &one);
        const bool pinned = ::sched_setaffinity(0, sizeof(one), &one) == 0;
        const auto& cores = topology().cores;
        std::_Exit(pinned && cores.size() == 1 && cores[0].cpu == cpu ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace switchyard
