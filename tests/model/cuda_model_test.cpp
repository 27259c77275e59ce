// SPDX-License-Identifier: Apache-2.0
// The model on a CUDA device: every family's goldens in f32, and the demonstration model beside the host's: prefill, mixed
// steps, and decode steps from graphs with and without padding.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/devices.h"
#include "model/golden_case.h"
#include "model/runner.h"
#include "tensor/compare.h"

namespace switchyard::test {
namespace {

constexpr DeviceId kDevice{DeviceId::Kind::cuda, 0};
constexpr const char* kDemo = SWITCHYARD_SOURCE_DIR "/models/demo";

#define SWITCHYARD_SKIP_WITHOUT_CUDA()                                                    \
  if (const auto bytes = model::find_device(kDevice)->available_bytes(0, 0); !bytes.ok()) \
  GTEST_SKIP() << bytes.error().message

void expect_close(const std::vector<float>& found, const std::vector<float>& expected, double limit,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, limit) << what << ": " << c.text();
}

class CudaGolden : public testing::TestWithParam<std::string> {};

// The same bound as on the host: both round differently in sums of a few hundred terms.
TEST_P(CudaGolden, F32MatchesInEveryMode) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  for (const std::string& layout : golden->layouts()) {
    const auto config = model::Model::read_config(layout);
    ASSERT_TRUE(config.ok()) << layout << ": " << config.error().message;
    auto runner = Runner::load(layout, *config, DType::f32, 2, kDevice);
    ASSERT_TRUE(runner.ok()) << layout << ": " << runner.error().message;
    for (int s = 0; s < golden->num_sequences(); ++s) {
      const std::string n = std::to_string(s);
      const auto ids = golden->integers("ids_" + n);
      for (const int step : golden->modes_agree() ? std::vector{0, 1, 5} : std::vector{0}) {
        SCOPED_TRACE(fmt::format("{}: sequence {}, {} tokens a step", layout, s, step));
        const Result<RunOutput> out = (*runner)->run(ids, step);
        ASSERT_TRUE(out.ok()) << out.error().message;
        expect_close(out->logits, golden->floats("logits_" + n), 1e-4, "logits");
        for (size_t l = 0; l < out->hidden.size(); ++l) {
          const std::string name = "hidden_" + n + "_" + std::to_string(l);
          expect_close(out->hidden[l], golden->floats(name), 1e-4, name);
        }
        for (size_t i = 0; i < golden->sparse_layers().size(); ++i) {
          const std::string place = n + "_" + std::to_string(golden->sparse_layers()[i]);
          EXPECT_EQ(out->expert[i], golden->integers("expert_" + place)) << place;
          expect_close(out->weight[i], golden->floats("weight_" + place), 1e-4, place);
        }
      }
      const auto expected = golden->integers("greedy_" + n);
      const auto found = (*runner)->greedy(ids, static_cast<int>(expected.size()));
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_EQ(*found, expected) << "sequence " << s;
    }
  }
}

TEST_P(CudaGolden, Bf16IsNoFurtherOffThanTheReferencesOwnBf16) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const Result<GoldenCase> golden = GoldenCase::open(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  if (golden->bf16_rms_error() == 0) return;
  const auto config = model::Model::read_config(golden->layouts()[0]);
  ASSERT_TRUE(config.ok()) << config.error().message;
  auto runner = Runner::load(golden->layouts()[0], *config, DType::bf16, 2, kDevice);
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
  EXPECT_LE(c.relative_error, golden->bf16_rms_error()) << c.text();
  std::printf("%s: bf16 logits off by %.5f, the reference's own bf16 by %.5f\n", GetParam().c_str(),
              c.relative_error, golden->bf16_rms_error());
}

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find("families/") + 9);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, CudaGolden, testing::ValuesIn(golden_folders()), case_name);

// Several sequences over one cache, driven step by step.
class Batch {
 public:
  static constexpr int kBlock = 64, kMaxBlocks = 2, kMost = 24;

  Batch(DType dtype, DeviceId device) : pool_(PoolOptions{.num_threads = 2, .pin = false}) {
    const model::LoadOptions options{.dtype = dtype,
                                     .max_step_tokens = 256,
                                     .max_sequences = kMost,
                                     .block_tokens = kBlock,
                                     .num_kv_blocks = kMaxBlocks * kMost,
                                     .max_blocks_per_sequence = kMaxBlocks,
                                     .on_progress = {}};
    const auto config = model::Model::read_config(kDemo);
    auto model = model::Model::load(kDemo, *config, options, Stream(device, pool_));
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (model.ok()) model_ = *std::move(model);
  }

  /// Forgets all sequences; the next ones have the tokens of another stream.
  void restart(uint32_t stream) {
    stream_ = stream;
    length_.clear();
  }

  /// A step of `counts[b]` new tokens for each sequence b; the logits of each sequence's last one.
  std::vector<float> step(const std::vector<int>& counts) {
    std::vector<int32_t> token, position, offset{0}, context, table, row;
    for (size_t b = 0; b < counts.size(); ++b) {
      length_.resize(std::max(length_.size(), counts.size()));
      context.push_back(length_[b]);
      for (int i = 0; i < counts[b]; ++i) {
        position.push_back(length_[b]++);
        token.push_back(static_cast<int32_t>(
            philox4x32({static_cast<uint32_t>(b), static_cast<uint32_t>(position.back()), 0, 0},
                       {stream_, 7})[0] %
            8192));
      }
      offset.push_back(static_cast<int32_t>(token.size()));
      row.push_back(offset.back() - 1);
      for (int i = 0; i < kMaxBlocks; ++i) {
        table.push_back((static_cast<int32_t>(b) * kMaxBlocks + i) * 5 % (kMaxBlocks * kMost));
      }
    }
    const auto all = [](std::vector<int32_t>& v) {
      return TensorView::of(v.data(), {std::ssize(v)});
    };
    const auto sequences = std::ssize(counts);
    const model::StepInput input{
        .token = all(token),
        .position = all(position),
        .seq_offset = all(offset),
        .context_len = all(context),
        .block_table = TensorView::of(table.data(), {sequences, kMaxBlocks}),
        .logit_row = all(row),
        .decode_only = std::ranges::all_of(counts, [](int count) { return count == 1; })};
    const auto out = model_->forward(input);
    EXPECT_TRUE(out.ok()) << out.error().message;
    if (!out.ok()) return {};
    const auto* logits = out->logits.as<float>();
    return {logits, logits + out->logits.shape.elements()};
  }

 private:
  Pool pool_;
  std::unique_ptr<model::Model> model_;
  std::vector<int32_t> length_;
  uint32_t stream_ = 7;
};

// Prefill, mixed and decode steps of up to 20 sequences; sizes with and without a graph of their own.
std::vector<std::vector<int>> plan() {
  std::vector<std::vector<int>> steps = {{37}, {1}, {1}, {1, 50}, {1, 1}, {1, 1}, {20, 1, 3}};
  for (int n : {3, 3, 4}) steps.push_back(std::vector<int>(n, 1));
  steps.push_back({1, 1, 1, 1, 9, 8, 7, 6, 5});
  for (int n : {9, 9, 10, 11, 5}) steps.push_back(std::vector<int>(n, 1));
  steps.push_back(std::vector<int>(20, 2));
  for (int n : {17, 18, 20, 1}) steps.push_back(std::vector<int>(n, 1));
  return steps;
}

// What bf16 does to the logits of these steps in transformers 5.17.0 itself: scripts/golden/demo_steps_bf16.py.
constexpr double kReferenceBf16Error = 0.0420;

// In bf16 rounding may tip a near-tie between two experts, which no bound on the rest can cover. So the measures are the host's
// and the reference's own bf16 runs, over all steps together; the device also rounds queries, mixed values and hidden rows to bf16.
// A dozen rows of a stream with such a tie make most of its error, so that of one stream is a matter of luck, from 0.010 to 0.045
// for the same rounding: eight streams are measured together.
TEST(CudaModel, StepsAreTheHosts) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  Batch host(DType::f32, {}), host_bf16(DType::bf16, {});
  Batch f32(DType::f32, kDevice), bf16(DType::bf16, kDevice);
  std::vector<float> exact, host_rough, rough;
  const auto append = [](std::vector<float>& to, const std::vector<float>& logits) {
    to.insert(to.end(), logits.begin(), logits.end());
  };
  for (uint32_t stream = 7; stream < 15; ++stream) {
    const size_t first = exact.size();
    for (Batch* batch : {&host, &host_bf16, &f32, &bf16}) batch->restart(stream);
    for (const std::vector<int>& counts : plan()) {
      SCOPED_TRACE(
          fmt::format("stream {}, {} sequences, first adds {}", stream, counts.size(), counts[0]));
      const auto expected = host.step(counts);
      expect_close(f32.step(counts), expected, 1e-4, "f32");
      append(exact, expected);
      append(host_rough, host_bf16.step(counts));
      append(rough, bf16.step(counts));
    }
    const auto error = [&](const std::vector<float>& its) {
      return compare(std::span(its).subspan(first), std::span(exact).subspan(first)).relative_error;
    };
    std::printf("stream %u: bf16 logits off by %.5f on the device, by %.5f on the host\n", stream,
                error(rough), error(host_rough));
  }
  const double host_error = compare(host_rough, exact).relative_error;
  const Comparison c = compare(rough, exact);
  std::printf("demo model: bf16 logits off by %.5f on the device, by %.5f on the host\n",
              c.relative_error, host_error);
  EXPECT_LE(c.relative_error, 1.5 * host_error) << c.text();
  EXPECT_LE(c.relative_error, kReferenceBf16Error);
  EXPECT_LE(host_error, kReferenceBf16Error);
}

TEST(CudaModel, RepeatedStepsGiveTheSameBits) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 3; ++round) {
    Batch batch(DType::bf16, kDevice);
    size_t i = 0;
    for (const std::vector<int>& counts : plan()) {
      auto logits = batch.step(counts);
      if (round == 0) {
        first.push_back(std::move(logits));
      } else {
        EXPECT_EQ(logits, first[i]) << "round " << round << ", step " << i;
      }
      ++i;
    }
  }
}

TEST(CudaModel, AMissingDeviceIsNamed) {
  const auto config = model::Model::read_config(kDemo);
  ASSERT_TRUE(config.ok());
  Pool pool(PoolOptions{.num_threads = 1, .pin = false});
  const model::LoadOptions options{
      .num_kv_blocks = 8, .max_blocks_per_sequence = 8, .on_progress = {}};
  const auto loaded =
      model::Model::load(kDemo, *config, options, Stream({DeviceId::Kind::cuda, 99}, pool));
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("CUDA"), std::string::npos) << loaded.error().message;
}

}  // namespace
}  // namespace switchyard::test
