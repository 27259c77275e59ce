// SPDX-License-Identifier: Apache-2.0
// switchyard bench latency --random on a CUDA device: the load that random weights make. Times are not judged.
#include <cmath>

#include <gtest/gtest.h>

#include "cli/json_rows.h"
#include "cli/program.h"
#include "device/device.h"

namespace switchyard {
namespace {

/// The row of a prompt of 512 tokens through OLMoE's geometry: 16 layers, 64 experts, 8 picks.
Json prompt_row(const char* spread) {
  const auto rows = rows_of(run_program({"bench",       "latency",
                                         "-q",          "--device",
                                         "cuda",        "--random",
                                         "olmoe-1b-7b", "-p",
                                         "512",         "-n",
                                         "0",           "-r",
                                         "1",           "--max-model-len",
                                         "1024",        "--max-step-tokens",
                                         "512",         "--random-spread",
                                         spread,        "-o",
                                         "jsonl"}));
  EXPECT_EQ(rows.size(), 1u);
  return rows.empty() ? Json() : rows[0];
}

TEST(BenchLatencyOnCuda, RandomWeightsSpreadTheirLoadAsAsked) {
  const auto devices = cuda_devices();
  if (!devices.ok() || devices->empty()) GTEST_SKIP() << "no CUDA device";
  // Hottest over mean of 512 tokens whose logits are normal, and whose experts' means lie so far apart: 1.3, 3.7 and 7.7 for
  // 64 experts and 8 picks, where 8 is the most; touched 64, 64 and 39.
  const Json even = prompt_row("0"), usual = prompt_row("0.5"), collapsed = prompt_row("2");
  EXPECT_NEAR(number(even, "load_imbalance"), 1.3, 0.2);
  EXPECT_EQ(number(even, "experts_touched"), 64);
  EXPECT_NEAR(number(usual, "load_imbalance"), 3.7, 0.5);
  EXPECT_GT(number(usual, "experts_touched"), 62);
  EXPECT_NEAR(number(collapsed, "load_imbalance"), 7.7, 0.3);
  EXPECT_LT(number(collapsed, "experts_touched"), 50);
  EXPECT_EQ(number(usual, "random_spread"), 0.5);
  EXPECT_TRUE(std::isfinite(number(usual, "median_tokens_per_s")));
}

}  // namespace
}  // namespace switchyard
