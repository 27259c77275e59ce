// SPDX-License-Identifier: Apache-2.0
// The memory plan: what fits, what is shortened, and what is refused with its sums.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "model/model.h"

namespace switchyard::engine {
namespace {

constexpr int64_t kMiB = 1 << 20;

MemoryNeeds needs() {
  MemoryNeeds needs;
  needs.weight_bytes = 100 * kMiB;
  needs.step_bytes = 10 * kMiB;
  needs.kv_block_bytes = kMiB / 4;
  needs.max_positions = 1024;  // 64 blocks of 16: 16 MiB for one sequence
  return needs;
}

EngineOptions options() {
  EngineOptions options;
  options.max_sequences = 4;
  options.block_tokens = 16;
  return options;
}

TEST(MemoryPlan, RoomForEverybody) {
  const auto plan = plan_memory(needs(), options(), 1000 * kMiB);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 4 * 64);
  EXPECT_EQ(plan->max_model_len, 1024);
  EXPECT_EQ(plan->kv_cache_bytes, 64 * kMiB);
}

TEST(MemoryPlan, CacheTakesHalfOfWhatIsLeft) {
  const auto plan = plan_memory(needs(), options(), 150 * kMiB);  // 40 are left
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 80);
  EXPECT_EQ(plan->max_model_len, 1024);
}

TEST(MemoryPlan, ShortensSequencesThatNobodyAskedToBeLong) {
  const auto plan = plan_memory(needs(), options(), 130 * kMiB);  // 20 are left, 10 for the cache
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 40);
  EXPECT_EQ(plan->max_model_len, 640);
}

TEST(MemoryPlan, DoesNotShortenWhatWasAskedFor) {
  EngineOptions asked = options();
  asked.max_model_len = 1000;
  const auto plan = plan_memory(needs(), asked, 130 * kMiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::out_of_memory);
  EXPECT_NE(plan.error().message.find("640 of 1000 positions"), std::string::npos);
}

TEST(MemoryPlan, RefusesWithAllSums) {
  const auto plan = plan_memory(needs(), options(), 90 * kMiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::out_of_memory);
  for (const char* part :
       {"weights 100.0 MiB", "step 10.0 MiB", "= 110.0 MiB", "90.0 MiB of memory"})
    EXPECT_NE(plan.error().message.find(part), std::string::npos) << plan.error().message;
}

TEST(MemoryPlan, RefusesACacheTooSmallToBeOfUse) {
  const auto plan = plan_memory(needs(), options(), 112 * kMiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::out_of_memory);
}

TEST(MemoryPlan, TakesTheCacheThatWasAskedFor) {
  EngineOptions asked = options();
  asked.kv_cache_bytes = 20 * kMiB;
  const auto plan = plan_memory(needs(), asked, 1000 * kMiB);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_blocks, 80);
  asked.kv_cache_bytes = 2000 * kMiB;
  EXPECT_EQ(plan_memory(needs(), asked, 1000 * kMiB).error().code, Code::out_of_memory);
  asked.kv_cache_bytes = 500 * kMiB;  // more than everybody can use
  EXPECT_EQ(plan_memory(needs(), asked, 1000 * kMiB)->num_blocks, 256);
}

TEST(MemoryPlan, TheDeviceChoosesBlocksAndCountsWhatItsAttentionTakes) {
  const auto config = model::Model::read_config(SWITCHYARD_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EngineOptions on_host, on_cuda, asked;
  asked.block_tokens = 32;
  const MemoryNeeds host = memory_needs_on({}, *config, on_host);
  const DeviceId device{DeviceId::Kind::cuda, 0};
  const MemoryNeeds cuda = memory_needs_on(device, *config, on_cuda);
  EXPECT_EQ(on_host.block_tokens, 16);
  EXPECT_EQ(on_cuda.block_tokens, 64);
  EXPECT_EQ(cuda.kv_block_bytes, 4 * host.kv_block_bytes);
  EXPECT_EQ(memory_needs_on(device, *config, asked).kv_block_bytes, 2 * host.kv_block_bytes);
  EXPECT_EQ(asked.block_tokens, 32);
  if (cuda.step_bytes == host.step_bytes) GTEST_SKIP() << "built without CUDA";
  // Partial sums of 16 sequences: 4 spans of 512 positions each, 4 heads of 64 values and more.
  EXPECT_GT(cuda.step_bytes - host.step_bytes, 16 * 4 * 4 * 64 * 4);
  EXPECT_LT(cuda.step_bytes - host.step_bytes, 2 * 16 * 4 * 4 * 68 * 4 + 100'000);
}

TEST(MemoryPlan, RefusesOptionsThatContradict) {
  const auto refusal = [](auto change) {
    EngineOptions wrong = options();
    change(wrong);
    const auto plan = plan_memory(needs(), wrong, 1000 * kMiB);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(refusal([](auto& o) { o.max_sequences = 0; }).substr(0, 13), "max_sequences");
  EXPECT_EQ(refusal([](auto& o) { o.max_step_tokens = 3; }).substr(0, 15), "max_step_tokens");
  EXPECT_EQ(refusal([](auto& o) { o.max_model_len = 1025; }).substr(0, 13), "max_model_len");
  EXPECT_EQ(refusal([](auto& o) { o.block_tokens = 0; }).substr(0, 12), "block_tokens");
  EXPECT_EQ(refusal([](auto& o) { o.kv_cache_bytes = -1; }).substr(0, 14), "kv_cache_bytes");
}

}  // namespace
}  // namespace switchyard::engine
