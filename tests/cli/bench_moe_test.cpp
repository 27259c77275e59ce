// SPDX-License-Identifier: Apache-2.0
// switchyard bench moe on tiny layers: the keys of its rows, what must hold between them, and what is
// refused. Times themselves are not judged.
#include <cmath>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text_checks.h"
#include "cli/bench_moe_draw.h"
#include "cli/json_rows.h"
#include "cli/program.h"

namespace switchyard {
namespace {

constexpr const char* kShape = "8/2x64x96";

/// The ceilings are measured once for all tests of this process.
const std::string& ceilings_file() {
  static const TemporaryFolder folder;
  static const std::string file = folder.file("ceilings.json");
  return file;
}

std::vector<std::string> bench(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench", "moe",        "--threads",     "2",  "-r",
                                     "2",     "--ceilings", ceilings_file(), "-o", "jsonl"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string text(const Json& row, const char* key) { return row.find(key)->as_string(); }

TEST(BenchMoe, RowsHaveTheKeysThatToolsRead) {
  const auto rows = rows_of(run_program(bench({"--shape", kShape, "--tokens", "3"})));
  ASSERT_EQ(rows.size(), 1u);
  std::string keys;
  for (const auto& [key, value] : rows[0].as_object()) keys += key + " ";
  EXPECT_EQ(
      keys,
      "shape tokens routing dtype kernel time_us floor_us experts_touched imbalance drop_rate "
      "gbps gflops capacity time_spread best_us rows runs layers threads gemm ");
  EXPECT_EQ(text(rows[0], "shape"), kShape);
  EXPECT_EQ(number(rows[0], "tokens"), 3);
  EXPECT_EQ(text(rows[0], "routing"), "uniform");
  EXPECT_EQ(text(rows[0], "dtype"), "bf16");
  EXPECT_EQ(text(rows[0], "kernel"), "grouped");
  EXPECT_GT(number(rows[0], "time_us"), 0);
  EXPECT_GT(number(rows[0], "floor_us"), 0);
  EXPECT_EQ(number(rows[0], "runs"), 2);
}

TEST(BenchMoe, EveryCombinationIsARow) {
  const auto rows = rows_of(run_program(
      bench({"--shape", "8/2x64x96,6/3x32x32", "--tokens", "1,16", "--routing", "uniform,zipf:1",
             "--kernel", "grouped,naive,padded", "--capacity", "0,1,1.25", "--dtype", "f32"})));
  EXPECT_EQ(rows.size(), 2u * 2 * 2 * 3 * 3);
}

TEST(BenchMoe, NumbersOfARowAgree) {
  const auto rows =
      rows_of(run_program(bench({"--shape", kShape, "--tokens", "64", "--kernel", "grouped,padded",
                                 "--capacity", "0,1", "--routing", "zipf:1"})));
  ASSERT_EQ(rows.size(), 4u);  // grouped and padded dropless, then with a capacity of 16
  for (const Json& row : rows) {
    const double kept = 64 * 2 * (1 - number(row, "drop_rate"));
    EXPECT_NEAR(number(row, "gflops"), 6e-3 * 64 * 96 * kept / number(row, "time_us"),
                1e-3 * number(row, "gflops"));
    EXPECT_NEAR(number(row, "gbps"),
                2e-3 * 3 * 64 * 96 * number(row, "experts_touched") / number(row, "time_us"),
                1e-3 * number(row, "gbps"));
    EXPECT_LE(number(row, "best_us"), number(row, "time_us"));
    EXPECT_GT(number(row, "imbalance"), 1.3);  // zipf:1 of 8 experts: about 2 in the long run
    const bool padded = text(row, "kernel") == "padded", limited = number(row, "capacity") == 1;
    EXPECT_EQ(number(row, "drop_rate") > 0.05, limited);
    if (padded && limited) {
      EXPECT_EQ(number(row, "rows"), 8 * 16);
    }
    if (padded && !limited) {
      EXPECT_GT(number(row, "rows"), 1.3 * kept);
    }
    if (!padded) {
      EXPECT_NEAR(number(row, "rows"), kept, 1e-3 * kept);
    }
  }
}

// Tokens are those of all ranks; one of eight computes the picks that fall on its 32 experts.
TEST(BenchMoe, ARankOfEightComputesAnEighth) {
  const auto shape = cli::MoeShape::parse("deepseek-v3-ep8").value();
  ASSERT_EQ(shape.num_slots(), 32);
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  const auto traffic = moe::Traffic::open("uniform", 256, 8, 1).value();
  constexpr int64_t kTokens = 64;
  std::vector<cli::MoeDraw> draws;
  for (uint32_t step = 0; step < 100; ++step)
    draws.push_back(cli::MoeDraw::make(shape, traffic, 0, kTokens, step, 1.25, stream).value());
  const cli::MoeLoad load = cli::mean_load(draws);
  EXPECT_NEAR(load.picks, kTokens, 3);  // 64 x 8 / 8, known to 8 / sqrt(100)
  EXPECT_NEAR(load.touched, 32 * (1 - std::pow(1 - 8.0 / 256, kTokens)), 0.8);
  EXPECT_EQ(load.max_capacity, 3);  // ceil(1.25 x 64 x 8 / 256)
  EXPECT_LT(load.kept_picks, load.picks);
  for (const cli::MoeDraw& draw : draws) {
    const Routing routing = draw.routing();
    int64_t kept = 0;
    for (int64_t pick = 0; pick < kTokens * 8; ++pick) {
      const int32_t e = routing.expert.as<int32_t>()[pick];
      ASSERT_LT(e, 32);
      kept += e >= 0 ? 1 : 0;
    }
    EXPECT_EQ(kept, draw.kept_picks());
  }
}

TEST(BenchMoe, PhasesAndFormats) {
  const auto rows = rows_of(run_program(bench({"--shape", kShape, "--tokens", "9", "--phases"})));
  ASSERT_EQ(rows.size(), 1u);
  const Json* phases = rows[0].find("phases_us");
  ASSERT_NE(phases, nullptr);
  for (const char* phase :
       {"router", "sort", "gather", "gemm_up", "activation", "gemm_down", "combine"}) {
    ASSERT_NE(phases->find(phase), nullptr) << phase;
    EXPECT_GE(phases->find(phase)->as_double(), 0);
  }
  EXPECT_GT(phases->find("gemm_up")->as_double(), 0);
  std::vector<std::string> arguments = bench({"--shape", kShape, "--tokens", "1"});
  arguments[9] = "md";
  EXPECT_TRUE(has(run_program(arguments).out, "| shape "));
  arguments[9] = "csv";
  EXPECT_TRUE(has(run_program(arguments).out, "shape,tokens,routing"));
  arguments[9] = "json";
  EXPECT_TRUE(parse_json(run_program(arguments).out, "output").ok());
}

TEST(BenchMoe, DrawsAFigure) {
  const TemporaryFolder folder;
  const std::string file = folder.file("figure.svg");
  const auto rows =
      rows_of(run_program(bench({"--shape", kShape, "--tokens", "1,4", "--kernel", "grouped,naive",
                                 "--routing", "uniform,zipf:1", "--plot", file})));
  EXPECT_EQ(rows.size(), 8u);
  const auto figure = read_text_file(file, 1 << 20);
  ASSERT_TRUE(figure.ok());
  for (const char* part : {"<svg", "8/2x64x96, uniform", "8/2x64x96, zipf:1", "naive", "floor"})
    EXPECT_TRUE(has(*figure, part));
  std::vector<std::string> arguments =
      bench({"--shape", kShape, "--tokens", "1", "--plot", folder.file("missing/figure.svg")});
  EXPECT_NE(run_program(arguments).code, 0);
}

void expect_refused(std::vector<std::string> more, int code, std::string_view part) {
  const Outcome outcome = run_program(bench(std::move(more)));
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("switchyard: ", 0), 0u) << outcome.err;
  EXPECT_TRUE(has(outcome.err, part));
}

TEST(BenchMoe, RefusesTheAbsurdWithTheRule) {
  expect_refused({"--shape", "4/5x64x64"}, 2, "a token picks each expert at most once");
  expect_refused({"--shape", "4/0x64x64"}, 2, "expected 1 to 4 picks");
  expect_refused({"--shape", "0/1x64x64"}, 2, "experts is 0");
  expect_refused({"--shape", "4/2x64x-1"}, 2, "expert width is -1");
  for (const char* shape :
       {"mixtral", "4/2x64", "4/2x64x64x", "4x2x64x64", "4/2x64x99999999999999999999"})
    expect_refused({"--shape", shape}, 2,
                   "known: mixtral-8x7b, qwen3-30b-a3b, olmoe-1b-7b, deepseek-v3-ep8, demo");
  expect_refused({"--shape", kShape, "--tokens", "0"}, 2, "--tokens has 0, expected 1 to");
  expect_refused({"--shape", kShape, "--tokens", "-4"}, 2, "--tokens has -4");
  expect_refused({"--shape", kShape, "--tokens", "many"}, 2, "many");
  expect_refused({"--shape", kShape, "--capacity", "-1"}, 2, "--capacity has -1, expected 0");
  expect_refused({"--shape", kShape, "--capacity", "nan"}, 2, "--capacity has nan");
  expect_refused({"--shape", kShape, "--kernel", "cutlass"}, 2,
                 "no kernel is called 'cutlass'; known: grouped, naive, padded");
  expect_refused({"--shape", kShape, "--routing", "zipf"}, 2, "known: uniform, zipf:EXPONENT");
  expect_refused({"--shape", kShape, "--routing", "trace:/nonexistent"}, 3, "/nonexistent");
  expect_refused({"--shape", kShape, "--dtype", "fp4"}, 2, "fp4");
}

TEST(BenchMoe, SaysWhatToLowerWhenMemoryIsShort) {
  expect_refused({"--shape", "512/8x16384x16384", "--tokens", "1"}, 5,
                 "lower --layers or --tokens");
}

TEST(BenchMoe, CeilingsOfAnotherMachineAreRefused) {
  const TemporaryFolder folder;
  folder.write("other.json", R"({"read_gbps_one": 1, "read_gbps_all": 1, "amx_gflops": 0,
      "fma_gflops": 1, "threads": 2, "cpu": "another", "isa": "avx2"})");
  folder.write("broken.json", "{");
  std::vector<std::string> arguments = bench({"--shape", kShape, "--tokens", "1"});
  arguments[7] = folder.file("other.json");
  const Outcome other = run_program(arguments);
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(has(other.err, "measured with cpu \"another\""));
  EXPECT_TRUE(has(other.err, "remove the file to measure again"));
  arguments[7] = folder.file("broken.json");
  EXPECT_EQ(run_program(arguments).code, 3);
}

}  // namespace
}  // namespace switchyard
