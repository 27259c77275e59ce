// SPDX-License-Identifier: Apache-2.0
// bench quality against the reference implementation's losses, with and without a capacity.
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "cli/program.h"

namespace switchyard::cli {
namespace {

constexpr const char* kModel = SWITCHYARD_SOURCE_DIR "/models/demo";
constexpr const char* kSpanish = SWITCHYARD_SOURCE_DIR "/models/demo/held_out/spanish.txt";
constexpr const char* kScripture = SWITCHYARD_SOURCE_DIR "/models/demo/held_out/scripture.txt";

Outcome quality(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench", "quality", kModel, "-q"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

/// The rows of a run in f32, one JSON object each.
std::vector<Json> rows(std::vector<std::string> more) {
  more.insert(more.end(), {"--dtype", "f32", "-o", "jsonl"});
  const Outcome outcome = quality(more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<Json> rows;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    rows.push_back(parse_json(line, "output").value());
  return rows;
}

/// The beginning of a held-out text, so that most tests are quick.
struct Short {
  explicit Short(const char* path) {
    folder.write("text.txt", read_text_file(path, 1 << 20).value().substr(0, 1200));
  }
  std::string path() const { return folder.file("text.txt"); }
  TemporaryFolder folder;
};

double number(const Json& row, const char* field) { return row.find(field)->as_double(); }

TEST(BenchQuality, LossAndDropsOfTheReference) {
  const auto golden =
      read_json_file(SWITCHYARD_SOURCE_DIR "/tests/golden/capacity/held_out.json").value();
  for (const Json& wanted : golden.find("rows")->as_array()) {
    const std::vector<Json> found =
        rows({"--input", kSpanish, "--capacity", std::to_string(number(wanted, "capacity_factor")),
              "--overflow", wanted.find("overflow")->as_string(), "-c",
              std::to_string(golden.find("context")->as_int())});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(number(found[0], "tokens"), number(wanted, "tokens"));
    EXPECT_NEAR(number(found[0], "nats_per_token"), number(wanted, "nats_per_token"), 1e-4);
    EXPECT_NEAR(number(found[0], "perplexity"), std::exp(number(wanted, "nats_per_token")), 1e-2);
    const auto& layers = found[0].find("layers")->as_array();
    const auto& dropped = wanted.find("dropped")->as_array();
    ASSERT_EQ(layers.size(), dropped.size());
    for (size_t i = 0; i < layers.size(); ++i)  // near-ties may fall otherwise in other kernels
      EXPECT_NEAR(number(layers[i], "dropped"), dropped[i].as_double(), 2) << "layer " << i;
  }
}

TEST(BenchQuality, StepsOfAWindowChangeNothingWhenDropless) {
  const Short text(kSpanish);
  const auto whole = rows({"--input", text.path(), "--capacity", "0", "-c", "300"});
  const auto steps =
      rows({"--input", text.path(), "--capacity", "0", "-c", "300", "--max-step-tokens", "70"});
  EXPECT_NEAR(number(whole[0], "nats_per_token"), number(steps[0], "nats_per_token"), 1e-6);
  EXPECT_EQ(number(steps[0], "step_tokens"), 70);
}

TEST(BenchQuality, ScoresWhatIsAskedFor) {
  const Short text(kSpanish);
  const double all =
      number(rows({"--input", text.path(), "--capacity", "0", "-c", "128"})[0], "tokens");
  const auto half =
      rows({"--input", text.path(), "--capacity", "0", "-c", "128", "--unscored", "64"});
  const auto windows = static_cast<int64_t>(all) / 128;
  const int64_t rest = static_cast<int64_t>(all) % 128;
  EXPECT_EQ(number(half[0], "tokens"), windows * 64 + std::max<int64_t>(rest - 64, 0));
}

TEST(BenchQuality, ManyTextsAndAllOfThem) {
  const Short text(kSpanish), other(kScripture);
  const auto found =
      rows({"--input", text.path(), "--input", other.path(), "--capacity", "0,8", "-c", "64"});
  ASSERT_EQ(found.size(), 6u);
  const double tokens = number(found[0], "tokens") + number(found[1], "tokens");
  EXPECT_EQ(found[2].find("input")->as_string(), "all");
  EXPECT_EQ(number(found[2], "tokens"), tokens);
  EXPECT_NEAR(number(found[2], "nats_per_token") * tokens,
              number(found[0], "nats_per_token") * number(found[0], "tokens") +
                  number(found[1], "nats_per_token") * number(found[1], "tokens"),
              1e-6 * tokens);
  // Factor 8 is E / K: nothing can be dropped, so nothing changes.
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(number(found[i + 3], "nats_per_token"), number(found[i], "nats_per_token"));
    EXPECT_EQ(number(found[i + 3], "drop_rate"), 0);
  }
}

TEST(BenchQuality, TablesNameTheCost) {
  const Short text(kSpanish);
  const Outcome markdown = quality({"--input", text.path(), "--capacity", "0,1"});
  EXPECT_EQ(markdown.code, 0) << markdown.err;
  for (const char* words : {"perplexity", "vs dropless", "+0.00 %", "by layer %", "| "})
    EXPECT_NE(markdown.out.find(words), std::string::npos) << markdown.out;
  const Outcome csv = quality({"--input", text.path(), "--capacity", "0", "-o", "csv"});
  EXPECT_EQ(csv.out.rfind("input,capacity,tokens,perplexity", 0), 0u) << csv.out;
}

TEST(BenchQuality, SaysWhatIsWrong) {
  const auto refused = [](std::vector<std::string> arguments, int code, const char* text) {
    const Outcome outcome = quality(std::move(arguments));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refused({"--input", "/nonexistent"}, 3, "/nonexistent");
  refused({"--input", kSpanish, "--capacity", "0,99"}, 2, "capacity_factor is 99");
  refused({"--input", kSpanish, "-c", "64", "--unscored", "64"}, 2, "less than --context (64)");
  refused({"--input", kSpanish, "-c", "5000"}, 2, "5000");
  refused({"--input", "/dev/null"}, 3, "/dev/null");
  refused({}, 2, "--input");
}

}  // namespace
}  // namespace switchyard::cli
