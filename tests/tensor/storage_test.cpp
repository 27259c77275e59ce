// SPDX-License-Identifier: Apache-2.0
// Owned bytes are zero and aligned, shared bytes keep their owner, absurd sizes are refused.
#include "tensor/storage.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "base/text_checks.h"
#include "base/topology.h"

namespace switchyard {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class StorageSize : public testing::TestWithParam<int64_t> {};

TEST_P(StorageSize, IsZeroedAlignedAndWritable) {
  const int64_t size = GetParam();
  const Result<Storage> storage = Storage::allocate(size);
  ASSERT_TRUE(storage.ok()) << storage.error().message;
  ASSERT_EQ(storage->size(), size);
  const auto address = reinterpret_cast<uintptr_t>(storage->data());
  EXPECT_EQ(address % 64, 0u);
  if (size >= 4 * kMiB) {
    EXPECT_EQ(address % static_cast<size_t>(2 * kMiB), 0u);
  }
  EXPECT_TRUE(std::all_of(storage->data(), storage->data() + size,
                          [](std::byte b) { return b == std::byte{0}; }));
  std::fill_n(storage->data(), size, std::byte{7});
}

INSTANTIATE_TEST_SUITE_P(Sizes, StorageSize,
                         testing::Values(1, 63, 64, 100, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 4097,
                                         9 * kMiB));

TEST(Storage, OfNoBytesIsEmpty) {
  EXPECT_TRUE(Storage().empty());
  EXPECT_TRUE(Storage::allocate(0)->empty());
}

TEST(Storage, RefusesTheAbsurd) {
  for (const int64_t size : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 60,
                             topology().memory_bytes + 1}) {
    const Result<Storage> storage = Storage::allocate(size);
    ASSERT_FALSE(storage.ok());
    EXPECT_EQ(storage.error().code, Code::out_of_memory);
    EXPECT_TRUE(has(storage.error().message, std::to_string(size)));
  }
}

TEST(Storage, CopiesShareTheBytes) {
  Storage first = *Storage::allocate(16);
  const Storage second = first;
  first.data()[3] = std::byte{9};
  first = Storage();
  EXPECT_EQ(second.data()[3], std::byte{9});
}

TEST(Storage, KeepsWhatItSharesAlive) {
  auto owner = std::make_shared<std::string>("shared bytes");
  const std::weak_ptr<std::string> watch = owner;
  {
    const Storage storage = Storage::share(owner, std::as_bytes(std::span(*owner)).subspan(7));
    owner.reset();
    ASSERT_FALSE(watch.expired());
    EXPECT_EQ(storage.size(), 5);
    EXPECT_EQ(storage.data()[0], std::byte{'b'});
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace switchyard
