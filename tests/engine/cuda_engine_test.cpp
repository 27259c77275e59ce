// SPDX-License-Identifier: Apache-2.0
// The engine with its model on a CUDA device: the demonstration model's greedy text is the reference's.
#include <string>
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

/// How many of the goldens the engine continues as the reference does.
int num_equal(Precision precision, int max_sequences, int max_step_tokens) {
  EngineOptions options;
  options.model = kModel;
  options.device = "cuda";
  options.precision = precision;
  options.threads = 2;
  options.max_model_len = 256;
  options.max_sequences = max_sequences;
  options.max_step_tokens = max_step_tokens;
  auto engine = Engine::open(options);
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
