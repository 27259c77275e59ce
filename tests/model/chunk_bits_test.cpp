// SPDX-License-Identifier: Apache-2.0
// What the prefix cache rests on: keys, values and logits have the same bits however a prompt was cut into steps, when
// SWITCHYARD_DETERMINISTIC=1 says so. A hit is a cut at the end of the shared blocks.
#include <cstdlib>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "model/runner.h"

namespace switchyard::test {
namespace {

constexpr const char* kModel = SWITCHYARD_SOURCE_DIR "/models/demo";
constexpr int kTokens = 49;

std::vector<int32_t> some_ids() {
  std::vector<int32_t> ids;
  for (int i = 0; i < kTokens; ++i) ids.push_back(300 + (i * 613) % 7000);
  return ids;
}

/// Positions whose logits differ in any bit.
int different_rows(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  const size_t vocab = a.size() / kTokens;
  int rows = 0;
  for (size_t t = 0; t < kTokens; ++t)
    rows += std::memcmp(&a[t * vocab], &b[t * vocab], vocab * sizeof(float)) != 0 ? 1 : 0;
  return rows;
}

TEST(ChunkBits, DoNotDependOnTheCuts) {
  ::setenv("SWITCHYARD_DETERMINISTIC", "1", 1);
  const auto config = model::Model::read_config(kModel);
  ASSERT_TRUE(config.ok());
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto runner = Runner::load(kModel, *config, dtype);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    const auto whole = (*runner)->run(some_ids(), 0);
    ASSERT_TRUE(whole.ok());
    const std::vector<std::vector<int>> cuts = {{16, 33}, {32, 17}, {48, 1}, {8, 8, 8, 8, 8, 8, 1}};
    for (const auto& chunks : cuts) {
      const auto cut = (*runner)->run_chunks(some_ids(), chunks);
      ASSERT_TRUE(cut.ok());
      EXPECT_EQ(different_rows(whole->logits, cut->logits), 0) << "first cut at " << chunks[0];
    }
  }
  ::unsetenv("SWITCHYARD_DETERMINISTIC");
}

}  // namespace
}  // namespace switchyard::test
