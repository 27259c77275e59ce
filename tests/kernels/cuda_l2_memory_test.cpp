// SPDX-License-Identifier: Apache-2.0
// Memory by the sides of the L2 on a device: the sides that addresses say are those that distances say, and it is memory like any other.
#include <bit>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "device/device.h"
#include "kernels/cuda/l2_memory.h"
#include "kernels/cuda/l2_probe.h"

namespace switchyard {
namespace {

constexpr int64_t kBytes = 320 << 20;

class L2MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<CudaStream> stream = CudaStream::open(0);
    if (!stream.ok()) GTEST_SKIP() << stream.error().message;
    stream_ = *std::move(stream);
    devices_ = *cuda_devices();
    ASSERT_EQ(unsetenv("SWITCHYARD_L2_SIDES"), 0);
  }
  L2Memory allocate(int64_t bytes) {
    Result<L2Memory> memory = L2Memory::allocate(bytes, "a test", stream_);
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    return *std::move(memory);
  }
  // Cycles from multiprocessors to words; each from some one.
  std::vector<cuda::L2Distance> distances(std::byte* base, const std::vector<int64_t>& offsets) {
    const int64_t bytes = std::ssize(offsets) * 8;
    const CudaMemory from = *CudaMemory::allocate(bytes, "offsets"),
                     to = *CudaMemory::allocate(bytes, "distances");
    std::vector<cuda::L2Distance> found(offsets.size());
    stream_.copy_in(from.data(), offsets.data(), bytes);
    cuda::l2_cycles_by_address(base, from.as<int64_t>(), std::ssize(offsets),
                               devices_[0].num_multiprocessors, to.as<cuda::L2Distance>(),
                               stream_.handle());
    stream_.copy_out(found.data(), to.data(), bytes);
    EXPECT_TRUE(stream_.synchronize("distances").ok());
    return found;
  }

  CudaStream stream_;
  std::vector<DeviceFacts> devices_;
};

TEST_F(L2MemoryTest, AddressesSayWhatIsNear) {
  if (devices_[0].compute_major != 9) GTEST_SKIP() << "for sm_90 alone";
  const L2Memory memory = allocate(kBytes);
  const L2Sides& sides = memory.sides();
  ASSERT_NE(sides.mask, 0U) << "Hopper has two sides";
  std::vector<int64_t> offsets;
  for (int64_t at = 0; at + 4 <= kBytes; at += 161 * 1024 + 132) offsets.push_back(at);
  const std::vector<cuda::L2Distance> found = distances(memory.data(), offsets);
  double cycles[2] = {};
  int count[2] = {}, astray = 0;
  for (const bool judge : {false, true}) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      const auto address = reinterpret_cast<uintptr_t>(memory.data() + offsets[i]);
      const int side = std::popcount(static_cast<uint32_t>(address) & sides.mask) % 2;
      const int sm = found[i].multiprocessor, own = sides.near[sm / 32] >> sm % 32 & 1;
      const double middle = (cycles[0] / count[0] + cycles[1] / count[1]) / 2;
      if (judge) astray += (found[i].cycles > middle) != (side != own);
      if (judge) continue;
      cycles[side != own] += found[i].cycles;
      ++count[side != own];
    }
  }
  EXPECT_GT(cycles[1] / count[1], cycles[0] / count[0] + 50);
  // A page may be astray where there are more of one kind.
  EXPECT_LE(astray, std::ssize(offsets) / 20) << "of " << offsets.size();
  EXPECT_GT(count[0], std::ssize(offsets) / 4);
}

TEST_F(L2MemoryTest, KeepsWhatIsWrittenAndIsAligned) {
  const L2Memory memory = allocate(kBytes + 12345);
  EXPECT_EQ(memory.size(), kBytes + 12345);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 8192, 0U);
  std::vector<uint32_t> words((kBytes + 12345) / 4), back(words.size());
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i) * 2654435761U;
  const int64_t bytes = std::ssize(words) * 4;
  stream_.copy_in(memory.data(), words.data(), bytes);
  stream_.copy_out(back.data(), memory.data(), bytes);
  ASSERT_TRUE(stream_.synchronize("copies").ok());
  EXPECT_TRUE(words == back);
}

// Other tests may run on the device at the same time: so much that their memory does not matter.
TEST_F(L2MemoryTest, IsGivenBack) {
  constexpr int64_t kMuch = int64_t{4} << 30;
  const int64_t before = *cuda_free_bytes(0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(allocate(kMuch).size(), kMuch);
  EXPECT_GE(*cuda_free_bytes(0), before - 2 * kMuch);
}

TEST_F(L2MemoryTest, SmallMemoryAndOffHaveNoSides) {
  EXPECT_EQ(allocate(1 << 20).sides().mask, 0U);
  ASSERT_EQ(setenv("SWITCHYARD_L2_SIDES", "0", 1), 0);
  EXPECT_EQ(allocate(kBytes).sides().mask, 0U);
  ASSERT_EQ(unsetenv("SWITCHYARD_L2_SIDES"), 0);
}

TEST_F(L2MemoryTest, TooMuchIsAnErrorAndTheDeviceLives) {
  const int64_t total = devices_[0].memory_bytes;
  const Result<L2Memory> memory =
      L2Memory::allocate(total + (int64_t{1} << 30), "too much", stream_);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, Code::out_of_memory);
  EXPECT_NE(memory.error().message.find("too much"), std::string::npos);
  EXPECT_EQ(allocate(kBytes).size(), kBytes);
}

}  // namespace
}  // namespace switchyard
