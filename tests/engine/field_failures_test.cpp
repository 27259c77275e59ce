// SPDX-License-Identifier: Apache-2.0
// Failures that other engines had in the field, of the class Memory, each as a test with the name of its row. Rows about
// several devices, and experts on the host while the rest is elsewhere, wait for those parts (docs/serving.md).
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "switchyard/switchyard.h"

#include "engine/memory_plan.h"
#include "model/model.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = SWITCHYARD_SOURCE_DIR "/models/demo";

/// The demonstration model without its weights.
fs::path folder_without_weights() {
  const fs::path folder = fs::path(::testing::TempDir()) / "switchyard_without_weights";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(kModel))
    if (entry.is_regular_file() && entry.path().extension() == ".json" &&
        entry.path().filename().string().find("safetensors") == std::string::npos)
      fs::copy_file(entry.path(), folder / entry.path().filename());
  return folder;
}

/// vllm#15182: out of memory in the middle of the load. Here the plan refuses, before any weight is read: there are none.
TEST(FieldFailures, Memory1) {
  EngineOptions options;
  options.model = folder_without_weights().string();
  options.kv_cache_bytes = int64_t{1} << 50;
  const auto refused = Engine::open(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::out_of_memory) << refused.error().message;
  EXPECT_NE(refused.error().message.find("does not fit"), std::string::npos);
  options.kv_cache_bytes = 0;
  options.max_model_len = 64;
  EXPECT_EQ(Engine::open(options).error().code, Code::bad_file) << "it fits, but has no weights";
}

/// ollama#10740: an estimate of twice the use. Here weights and cache are foreseen within 10 %.
TEST(FieldFailures, Memory3) {
  const auto config = model::Model::read_config(kModel);
  ASSERT_TRUE(config.ok());
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    EngineOptions options;
    options.model = kModel;
    options.precision = precision;
    options.max_model_len = 512;
    options.threads = 1;
    const auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const ModelSummary& summary = (*engine)->summary();
    const engine::MemoryNeeds needs = engine::memory_needs_on({}, *config, options);
    const auto taken = static_cast<double>(summary.weight_bytes + summary.kv_cache_bytes);
    const int64_t blocks = summary.kv_tokens / options.block_tokens;
    const auto planned = static_cast<double>(needs.weight_bytes + blocks * needs.kv_block_bytes);
    EXPECT_NEAR(planned, taken, 0.1 * taken);
  }
}

/// sglang#8864, sglang#35751: an estimate from the file's layout, where the weights then lie in memory at a multiple of it. The
/// demonstration model is bf16 in its files; in f32 its weights take twice the plan of bf16, routers aside, which are f32 in both.
TEST(FieldFailures, Memory5) {
  const auto config = model::Model::read_config(kModel);
  ASSERT_TRUE(config.ok());
  EngineOptions options;
  options.precision = Precision::bf16;
  const int64_t narrow = engine::memory_needs(*config, options, 1).weight_bytes;
  options.precision = Precision::f32;
  const int64_t wide = engine::memory_needs(*config, options, 1).weight_bytes;
  const int64_t routers = 4 * model::count_parameters(*config).router;
  EXPECT_EQ(wide - routers, 2 * (narrow - routers));
}

}  // namespace
}  // namespace switchyard
