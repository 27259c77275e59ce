// SPDX-License-Identifier: Apache-2.0
// Every family against the reference framework: all layouts, prefill, token by token and in chunks,
// in f32 and bf16.
#include <cmath>

#include <gtest/gtest.h>

#include "model/golden_case.h"
#include "model/runner.h"
#include "tensor/compare.h"

namespace switchyard::test {
namespace {

// f32: both sides round differently in sums of a few hundred terms over three layers; 1e-4 is the
// project's bound.
constexpr double kF32Relative = 1e-4;
// bf16: our residual stream stays f32, so we must be no further from f32 than the reference's own
// bf16 run.
constexpr double kBf16Slack = 1.0;

class Golden : public testing::TestWithParam<std::string> {};

void expect_close(const std::vector<float>& found, const std::vector<float>& expected,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, kF32Relative) << what << ": " << c.text();
}

void expect_equal_to_golden(const GoldenCase& golden, const RunOutput& out, int sequence) {
  const std::string n = std::to_string(sequence);
  expect_close(out.logits, golden.floats("logits_" + n), "logits of sequence " + n);
  for (size_t l = 0; l < out.hidden.size(); ++l) {
    const std::string name = "hidden_" + n + "_" + std::to_string(l);
    expect_close(out.hidden[l], golden.floats(name), name);
  }
  for (size_t i = 0; i < golden.sparse_layers().size(); ++i) {
    const std::string place = n + "_" + std::to_string(golden.sparse_layers()[i]);
    EXPECT_EQ(out.expert[i], golden.integers("expert_" + place)) << place;
    expect_close(out.weight[i], golden.floats("weight_" + place), "weight_" + place);
  }
}

TEST_P(Golden, F32MatchesInEveryLayoutAndMode) {
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  for (const std::string& layout : golden->layouts()) {
    const auto config = model::Model::read_config(layout);
    ASSERT_TRUE(config.ok()) << layout << ": " << config.error().message;
    auto runner = Runner::load(layout, *config, DType::f32);
    ASSERT_TRUE(runner.ok()) << layout << ": " << runner.error().message;
    for (int s = 0; s < golden->num_sequences(); ++s) {
      const auto ids = golden->integers("ids_" + std::to_string(s));
      const std::vector<int> steps =
          golden->modes_agree() ? std::vector<int>{0, 1, 5} : std::vector<int>{0};
      for (const int step : steps) {
        SCOPED_TRACE(fmt::format("{}: sequence {}, {} tokens a step", layout, s, step));
        const Result<RunOutput> out = (*runner)->run(ids, step);
        ASSERT_TRUE(out.ok()) << out.error().message;
        expect_equal_to_golden(*golden, *out, s);
      }
    }
  }
}

// With dynamic rope the base follows the length at the time, and cached keys keep their rotation.
TEST_P(Golden, ModesThatDifferDifferAsTheReferenceDoes) {
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  if (golden->modes_agree()) return;
  const auto config = model::Model::read_config(golden->layouts()[0]);
  auto runner = Runner::load(golden->layouts()[0], *config, DType::f32);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  const std::vector<std::vector<int>> chunks = {{1}, {3, 4}, {16, 5, 1, 15}};
  for (int s = 0; s < golden->num_sequences(); ++s) {
    const std::string n = std::to_string(s);
    const auto ids = golden->integers("ids_" + n);
    expect_close((*runner)->run(ids, 1)->logits, golden->floats("stepwise_logits_" + n),
                 "stepwise " + n);
    expect_close((*runner)->run_chunks(ids, chunks[s])->logits,
                 golden->floats("chunked_logits_" + n), "chunked " + n);
  }
}

TEST_P(Golden, GreedyContinuationIsTheReferences) {
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto config = model::Model::read_config(golden->layouts()[0]);
  ASSERT_TRUE(config.ok()) << config.error().message;
  auto runner = Runner::load(golden->layouts()[0], *config, DType::f32);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  for (int s = 0; s < golden->num_sequences(); ++s) {
    const auto expected = golden->integers("greedy_" + std::to_string(s));
    const auto found = (*runner)->greedy(golden->integers("ids_" + std::to_string(s)),
                                         static_cast<int>(expected.size()));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, expected) << "sequence " << s;
  }
}

TEST_P(Golden, Bf16IsNoFurtherOffThanTheReferencesOwnBf16) {
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  if (golden->bf16_rms_error() == 0) return;  // a variant of a model whose base is compared
  const auto config = model::Model::read_config(golden->layouts()[0]);
  ASSERT_TRUE(config.ok()) << config.error().message;
  auto runner = Runner::load(golden->layouts()[0], *config, DType::bf16);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  std::vector<float> found, expected;
  for (int s = 0; s < golden->num_sequences(); ++s) {
    const Result<RunOutput> out = (*runner)->run(golden->integers("ids_" + std::to_string(s)), 0);
    ASSERT_TRUE(out.ok()) << out.error().message;
    const auto logits = golden->floats("logits_" + std::to_string(s));
    found.insert(found.end(), out->logits.begin(), out->logits.end());
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, kBf16Slack * golden->bf16_rms_error()) << c.text();
  RecordProperty("relative_error", fmt::format("{:.5f}", c.relative_error));
}

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  const size_t at = info.param.find("families/");
  std::string name = info.param.substr(at + 9);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, testing::ValuesIn(golden_folders()), case_name);

}  // namespace
}  // namespace switchyard::test
