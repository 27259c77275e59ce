// SPDX-License-Identifier: Apache-2.0
// Tokens chosen on a CUDA device beside the host's sampler: random rows, every parameter, vocabularies small and real.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/sampler.h"
#include "model/cuda/picks.h"

namespace switchyard::engine {
namespace {

struct Row {
  std::vector<float> logits;
  std::vector<int32_t> tokens, end_tokens;
  int prompt_tokens = 0;
  SamplingParams params;
  uint64_t seed = 0;
  std::vector<model::SeenToken> seen;

  model::SampleSpec spec() {
    std::map<int32_t, uint32_t> count;
    for (size_t i = 0; i < tokens.size(); ++i) {
      count[tokens[i]] += i >= static_cast<size_t>(prompt_tokens) ? 1 : 0;
    }
    seen.clear();
    if (params.repetition_penalty != 1 || params.presence_penalty != 0 ||
        params.frequency_penalty != 0) {
      for (const auto& [token, times] : count) seen.push_back({token, times});
    }
    model::SampleSpec spec;
    spec.temperature = params.temperature;
    spec.top_p = params.top_p;
    spec.min_p = params.min_p;
    spec.top_k = params.top_k;
    spec.repetition = params.repetition_penalty;
    spec.presence = params.presence_penalty;
    spec.frequency = params.frequency_penalty;
    spec.seed = seed;
    spec.position = tokens.size();
    spec.seen = seen;
    const auto output = tokens.size() - static_cast<size_t>(prompt_tokens);
    if (output < static_cast<size_t>(params.min_tokens)) spec.masked = end_tokens;
    return spec;
  }
};

template <class T>
T one_of(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

// A third is greedy; a quarter of all rows holds ties at the top.
Row make_row(std::mt19937& random, int vocab) {
  Row row;
  std::normal_distribution<float> normal(0, one_of(random, {0.5f, 2.0f, 6.0f}));
  for (int i = 0; i < vocab; ++i) row.logits.push_back(normal(random));
  if (random() % 4 == 0) {
    const float most = *std::max_element(row.logits.begin(), row.logits.end());
    for (int i = 0; i < 3; ++i) row.logits[random() % row.logits.size()] = most;
  }
  for (int i = 0, n = static_cast<int>(random() % 60); i < n; ++i) {
    row.tokens.push_back(static_cast<int32_t>(random() % std::min(vocab, 40)));
  }
  row.prompt_tokens = row.tokens.empty() ? 0 : static_cast<int>(random() % row.tokens.size());
  row.end_tokens = {0, static_cast<int32_t>(vocab - 1)};
  row.seed = random();
  SamplingParams& p = row.params;
  p.temperature = one_of(random, {0.0f, 0.7f, 1.0f, 1.6f});
  if (random() % 3 == 0) p.temperature = 0;
  p.top_k = one_of(random, {0, 0, 1, 20, 50, 700, 1024, 2000});
  p.top_p = one_of(random, {1.0f, 1.0f, 0.3f, 0.9f, 0.99f});
  p.min_p = one_of(random, {0.0f, 0.0f, 0.02f, 0.3f});
  p.repetition_penalty = one_of(random, {1.0f, 1.0f, 1.3f, 0.8f});
  p.presence_penalty = one_of(random, {0.0f, 0.0f, 0.5f, -1.0f});
  p.frequency_penalty = one_of(random, {0.0f, 0.0f, 0.25f});
  p.min_tokens = one_of(random, {0, 0, 1000});
  return row;
}

class CudaSampler : public testing::Test {
 protected:
  void SetUp() override {
    auto stream = CudaStream::open(0);
    if (!stream.ok()) GTEST_SKIP() << stream.error().message;
    stream_ = *std::move(stream);
  }
  std::vector<int32_t> on_device(std::vector<Row>& rows, int vocab) {
    auto picks = model::cuda::Picks::create(static_cast<int>(rows.size()), stream_);
    const auto count = std::ssize(rows);
    auto logits = CudaMemory::allocate(count * vocab * 4, "a test");
    auto pick = CudaMemory::allocate(count * 4, "a test");
    std::vector<model::SampleSpec> specs;
    for (size_t i = 0; i < rows.size(); ++i) {
      specs.push_back(rows[i].spec());
      stream_.copy_in(logits->as<float>() + static_cast<int64_t>(i) * vocab, rows[i].logits.data(),
                      int64_t{vocab} * 4);
    }
    const auto asked = picks->pack(specs);
    EXPECT_TRUE(asked.picks);
    const auto bytes = static_cast<int64_t>(picks->rows().size_bytes());
    auto sample = CudaMemory::allocate(bytes, "a test");
    stream_.copy_in(sample->data(), picks->rows().data(), bytes);
    picks->queue(asked, static_cast<int>(count), sample->as<cuda::SampleRow>(), logits->as<float>(),
                 vocab, pick->as<int32_t>(), stream_);
    std::vector<int32_t> found(rows.size());
    stream_.copy_out(found.data(), pick->data(), count * 4);
    const Status status = stream_.synchronize("test");
    EXPECT_TRUE(status.ok()) << status.error().message;
    return found;
  }
  Pick on_host(const Row& row) {
    Sampler sampler(static_cast<int>(row.logits.size()), 1, pool_);
    std::vector<float> logits = row.logits;
    SampleRow sample{logits, row.tokens, row.prompt_tokens, &row.params, row.end_tokens, row.seed};
    return sampler.pick({&sample, 1})[0];
  }

  Pool pool_{PoolOptions{.num_threads = 1, .pin = false}};
  CudaStream stream_;
};

// Undecided is allowed for what the header names: long top-k, or a top-p that needs more than 512 tokens; never for greedy rows.
TEST_F(CudaSampler, ChoosesTheHostsTokens) {
  std::mt19937 random(7);
  int drawn = 0, different = 0, undecided = 0;
  for (const int vocab : {5, 33, 8192, 50304, 151936}) {
    const int rounds = vocab > 9000 ? 4 : 12;
    for (int round = 0; round < rounds; ++round) {
      std::vector<Row> rows;
      for (int i = 0; i < 24; ++i) rows.push_back(make_row(random, vocab));
      const std::vector<int32_t> found = on_device(rows, vocab);
      for (size_t i = 0; i < rows.size(); ++i) {
        const SamplingParams& p = rows[i].params;
        const Pick expected = on_host(rows[i]);
        SCOPED_TRACE(testing::Message()
                     << vocab << " tokens, temperature " << p.temperature << ", top-k " << p.top_k
                     << ", top-p " << p.top_p << ", min-p " << p.min_p);
        if (p.temperature == 0) {
          EXPECT_EQ(found[i], expected.token);
          continue;
        }
        ++drawn;
        if (found[i] == model::kPickUndecided) {
          ++undecided;
          EXPECT_TRUE(p.top_k > 1024 || (p.top_p < 1 && p.top_k == 0)) << "undecided";
        } else {
          different += found[i] != expected.token ? 1 : 0;
        }
      }
    }
  }
  std::printf("%d draws: %d left to the host, %d differ\n", drawn, undecided, different);
  EXPECT_LE(different, drawn / 500);
  EXPECT_LT(undecided, drawn / 3);
}

TEST_F(CudaSampler, RowsThatAreNotFiniteAreNamed) {
  std::mt19937 random(3);
  std::vector<Row> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(make_row(random, 50304));
  rows[1].logits[50303] = std::numeric_limits<float>::quiet_NaN();
  rows[2].logits[0] = std::numeric_limits<float>::infinity();
  rows[4].logits[777] = -std::numeric_limits<float>::infinity();
  const std::vector<int32_t> found = on_device(rows, 50304);
  for (const int i : {1, 2, 4}) EXPECT_EQ(found[static_cast<size_t>(i)], model::kPickNonFinite);
  for (const int i : {0, 3, 5}) EXPECT_NE(found[static_cast<size_t>(i)], model::kPickNonFinite);
}

// Nothing is left to draw from, whatever selects: the host says token 0.
TEST_F(CudaSampler, RowsOfMaskedTokensAlone) {
  std::vector<Row> rows;
  for (const int top_k : {0, 2}) {
    for (const float top_p : {1.0f, 0.5f}) {
      for (const float min_p : {0.0f, 0.3f}) {
        Row row;
        row.logits = {0.5f, -1.0f, 2.0f};
        row.end_tokens = {0, 1, 2};
        row.params.min_tokens = 1000;
        row.params.temperature = 1;
        row.params.top_k = top_k;
        row.params.top_p = top_p;
        row.params.min_p = min_p;
        row.seed = rows.size();
        rows.push_back(row);
      }
    }
  }
  const std::vector<int32_t> found = on_device(rows, 3);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(on_host(rows[i]).token, 0);
    EXPECT_EQ(found[i], 0);
  }
}

TEST_F(CudaSampler, TheSameEveryTime) {
  std::mt19937 random(11);
  std::vector<Row> rows;
  for (int i = 0; i < 16; ++i) rows.push_back(make_row(random, 151936));
  const std::vector<int32_t> first = on_device(rows, 151936);
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_EQ(on_device(rows, 151936), first);
}

}  // namespace
}  // namespace switchyard::engine
