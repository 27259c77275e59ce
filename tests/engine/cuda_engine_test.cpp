// SPDX-License-Identifier: Apache-2.0
// The engine with its model on a CUDA device: the demonstration model's greedy text is the reference's.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "switchyard/switchyard.h"

#include "base/json.h"
#include "device/cuda.h"

namespace switchyard {
namespace {

constexpr const char* kModel = SWITCHYARD_SOURCE_DIR "/models/demo";

struct Golden {
  std::string prompt, text;
  int tokens = 0;
};

std::vector<Golden> goldens() {
  const auto json = read_json_file(std::string(kModel) + "/golden/logits.json");
  EXPECT_TRUE(json.ok());
  std::vector<Golden> goldens;
  for (const Json& one : json->find("prompts")->as_array())
    goldens.push_back({one.find("prompt")->as_string(), one.find("greedy_text")->as_string(),
                       static_cast<int>(one.find("greedy")->as_array().size())});
  return goldens;
}

EngineOptions options_of(Precision precision, int max_sequences, int max_step_tokens) {
  EngineOptions options;
  options.model = kModel;
  options.device = "cuda";
  options.precision = precision;
  options.threads = 2;
  options.max_model_len = 256;
  options.max_sequences = max_sequences;
  options.max_step_tokens = max_step_tokens;
  return options;
}

/// How many of the goldens the engine continues as the reference does.
int num_equal(Precision precision, int max_sequences, int max_step_tokens) {
  auto engine = Engine::open(options_of(precision, max_sequences, max_step_tokens));
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  if (!engine.ok()) return -1;
  const auto expected = goldens();
  std::vector<std::string> text(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    Request request;
    request.prompt = expected[i].prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = expected[i].tokens;
    request.sampling.ignore_eos = true;
    const auto id = (*engine)->submit(std::move(request), [&text, i](const Event& event) {
      text[i] += event.text;
      EXPECT_FALSE(event.error) << event.error->message;
    });
    EXPECT_TRUE(id.ok());
  }
  (*engine)->wait_idle();
  int equal = 0;
  for (size_t i = 0; i < expected.size(); ++i) equal += text[i] == expected[i].text;
  return equal;
}

TEST(CudaEngine, GreedyTextIsTheReferences) {
  if (const auto free = cuda_free_bytes(0); !free.ok()) GTEST_SKIP() << free.error().message;
  const auto all = static_cast<int>(goldens().size());
  EXPECT_EQ(num_equal(Precision::f32, 16, 512), all);
  EXPECT_EQ(num_equal(Precision::f32, 1, 512), all);
  EXPECT_EQ(num_equal(Precision::f32, 5, 7), all);  // chunks and mixed steps
  std::printf("bf16: %d of %d greedy texts equal the f32 reference's\n",
              num_equal(Precision::bf16, 16, 512), all);
}

struct Stream {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
};

/// Of the goldens over and over, two at a time: where one ends the next one comes, while the other goes on. stop[i]: ends request i.
std::vector<Stream> streams_of(Engine& engine, const std::vector<std::vector<int32_t>>& stop,
                               int max_tokens) {
  const auto prompts = goldens();
  std::vector<Stream> streams(stop.size());
  std::atomic<size_t> ended{0};
  for (size_t i = 0; i < stop.size(); ++i) {
    while (i - ended >= 2) std::this_thread::yield();
    Request request;
    request.prompt = prompts[i % prompts.size()].prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.stop_token_ids = stop[i];
    request.moe_stats = false;  // with it, picks are copied and no step goes ahead
    const auto id = engine.submit(std::move(request), [&, i](const Event& event) {
      EXPECT_FALSE(event.error) << event.error->message;
      streams[i].tokens.insert(streams[i].tokens.end(), event.tokens.begin(), event.tokens.end());
      streams[i].finish = event.finish;
      if (event.finish != FinishReason::none) ++ended;
    });
    EXPECT_TRUE(id.ok());
  }
  engine.wait_idle();
  return streams;
}

double value_of(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(metrics.substr(at + name.size() + 2));
}

// A sequence that ends by its token makes the step ahead one for nothing: the other sequence, those that come, and all counts are as if
// it had not been.
TEST(CudaEngine, AStopTokenEndsAStreamWhileAStepIsAhead) {
  if (const auto free = cuda_free_bytes(0); !free.ok()) GTEST_SKIP() << free.error().message;
  constexpr size_t kRequests = 24;
  constexpr int kTokens = 100;
  const auto engine = Engine::open(options_of(Precision::f32, 2, 64));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto whole = streams_of(**engine, std::vector<std::vector<int32_t>>(kRequests), kTokens);
  double expected = 0;
  std::vector<std::vector<int32_t>> stop, until;
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(whole[i].finish, FinishReason::length);
    const auto& all = whole[i].tokens;
    ASSERT_EQ(std::ssize(all), kTokens);
    stop.push_back({all[40 + i * 13 % 50]});
    until.emplace_back(all.begin(), std::find(all.begin(), all.end(), stop.back()[0]) + 1);
    expected += static_cast<double>(all.size() + until.back().size());
  }
  const auto stopped = streams_of(**engine, stop, kTokens);
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(stopped[i].tokens, until[i]) << "request " << i;
    EXPECT_EQ(stopped[i].finish, FinishReason::stop) << "request " << i;
  }
  const std::string metrics = (*engine)->metrics_text();
  EXPECT_EQ(value_of(metrics, "switchyard_generation_tokens_total"), expected);
  EXPECT_GT(value_of(metrics, "switchyard_steps_ahead_total{outcome=\"used\"}"), 100);
  EXPECT_GT(value_of(metrics, "switchyard_steps_ahead_total{outcome=\"wasted\"}"), 0);
  EXPECT_EQ(value_of(metrics, "switchyard_steps_ahead_total{outcome=\"failed\"}"), 0);
}

TEST(CudaEngine, WithoutADeviceOpenSaysSo) {
  EngineOptions options;
  options.model = kModel;
  options.device = "cuda:99";
  const auto engine = Engine::open(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("CUDA"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace switchyard
