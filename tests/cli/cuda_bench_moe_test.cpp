// SPDX-License-Identifier: Apache-2.0
// switchyard bench moe --device cuda: the host's rows from a device, and what must hold between them. Times are not judged.
#include <gtest/gtest.h>

#include "cli/json_rows.h"
#include "cli/program.h"
#include "device/device.h"

namespace switchyard {
namespace {

bool has_device() {
  const auto devices = cuda_devices();
  return devices.ok() && !devices->empty();
}

std::vector<std::string> bench(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench", "moe", "--device", "cuda", "-r", "2", "-o", "jsonl"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(BenchMoeOnCuda, GivesTheRowsOfTheHost) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const auto rows = rows_of(run_program(
      bench({"--shape", "16/4x256x128", "--tokens", "3,40", "--kernel", "grouped,naive,padded",
             "--capacity", "0,1", "--routing", "uniform,zipf:1", "--phases"})));
  ASSERT_EQ(rows.size(), 24u);
  for (const Json& row : rows) {
    std::string keys;
    for (const auto& [key, value] : row.as_object()) keys += key + " ";
    EXPECT_EQ(
        keys,
        "shape tokens routing dtype kernel time_us floor_us experts_touched imbalance drop_rate "
        "gbps gflops capacity time_spread best_us rows runs layers threads gemm phases_us ");
    EXPECT_GT(number(row, "time_us"), 0);
    EXPECT_GT(number(row, "floor_us"), 0);
    EXPECT_LE(number(row, "experts_touched"), 16);
    EXPECT_EQ(number(row, "runs"), 2);
    EXPECT_GT(number(row, "threads"), 0);
    const bool padded = row.find("kernel")->as_string() == "padded";
    const double kept = number(row, "tokens") * 4 * (1 - number(row, "drop_rate"));
    if (padded) {
      EXPECT_GE(number(row, "rows"), kept - 1e-3);
    } else {
      EXPECT_NEAR(number(row, "rows"), kept, 1e-3);
    }
    double sum = 0;
    for (const auto& [phase, us] : row.find("phases_us")->as_object()) sum += us.as_double();
    EXPECT_GT(sum, 0);
  }
}

TEST(BenchMoeOnCuda, ARankOfEightHoldsAnEighth) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const auto rows = rows_of(run_program(
      bench({"--shape", "deepseek-v3-ep8", "--tokens", "64", "--kernel", "grouped,padded"})));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_LE(number(rows[0], "experts_touched"), 32);
  EXPECT_LT(number(rows[0], "rows"), 64 * 8 / 4);
}

TEST(BenchMoeOnCuda, SaysWhatItCannotDo) {
  if (!has_device()) {
    const Outcome outcome = run_program(bench({"--shape", "demo"}));
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find("CUDA"), std::string::npos) << outcome.err;
    return;
  }
  const Outcome f32 = run_program(bench({"--shape", "demo", "--dtype", "f32"}));
  EXPECT_NE(f32.code, 0);
  EXPECT_NE(f32.err.find("--dtype bf16"), std::string::npos) << f32.err;
  const Outcome odd = run_program(bench({"--shape", "8/2x60x64"}));
  EXPECT_NE(odd.code, 0);
  EXPECT_NE(odd.err.find("multiple of 8"), std::string::npos) << odd.err;
}

}  // namespace
}  // namespace switchyard
