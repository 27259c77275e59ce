// SPDX-License-Identifier: Apache-2.0
// generation_config.json: the reference framework's order of defaults, lists of end ids, and
// malformed files.
#include "engine/generation_config.h"

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

Result<GenerationDefaults> parse(std::string_view text) {
  const auto json = parse_json(text, "generation_config.json");
  EXPECT_TRUE(json.ok());
  return parse_generation_config(*json, "generation_config.json");
}

std::string refusal(std::string_view text) {
  const auto defaults = parse(text);
  if (defaults.ok()) return "accepted";
  EXPECT_EQ(defaults.error().code, Code::bad_file);
  return defaults.error().message;
}

TEST(GenerationConfig, DemoModel) {
  const auto defaults = read_generation_config(SWITCHYARD_SOURCE_DIR "/models/demo");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message;
  EXPECT_EQ(defaults->eos_ids, (std::vector<int32_t>{2, 0}));
  EXPECT_FLOAT_EQ(defaults->sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(defaults->sampling.top_p, 0.9f);
  EXPECT_EQ(defaults->sampling.top_k, 40);
}

TEST(GenerationConfig, AbsentFileIsGreedy) {
  const auto defaults = read_generation_config("/nonexistent");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->sampling.temperature, 0.0f);
  EXPECT_TRUE(defaults->eos_ids.empty());
}

TEST(GenerationConfig, NoSamplingIsTemperatureZeroWhateverElseItSays) {
  EXPECT_EQ(parse(R"({"temperature": 0.7})")->sampling.temperature, 0.0f);
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.7})")->sampling.temperature, 0.0f);
  EXPECT_EQ(parse(R"({"do_sample": null})")->sampling.temperature, 0.0f);
}

TEST(GenerationConfig, SamplingWithoutTopKHasFifty) {
  const auto defaults = parse(R"({"do_sample": true})");
  EXPECT_EQ(defaults->sampling.top_k, 50);
  EXPECT_EQ(defaults->sampling.temperature, 1.0f);
  EXPECT_EQ(defaults->sampling.top_p, 1.0f);
  EXPECT_EQ(parse(R"({"do_sample": true, "top_k": 0})")->sampling.top_k, 0);
  EXPECT_EQ(parse(R"({"do_sample": true, "top_k": null})")->sampling.top_k, 50);
}

TEST(GenerationConfig, ReadsTheOtherKeys) {
  const auto defaults = parse(
      R"({"do_sample": true, "repetition_penalty": 1.05, "min_p": 0.1, "max_new_tokens": 77, "top_p": 1})");
  EXPECT_FLOAT_EQ(defaults->sampling.repetition_penalty, 1.05f);
  EXPECT_FLOAT_EQ(defaults->sampling.min_p, 0.1f);
  EXPECT_EQ(defaults->sampling.max_tokens, 77);
}

TEST(GenerationConfig, EndIds) {
  EXPECT_EQ(parse(R"({"eos_token_id": 7})")->eos_ids, std::vector<int32_t>{7});
  EXPECT_EQ(parse(R"({"eos_token_id": [7, 8]})")->eos_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_TRUE(parse(R"({"eos_token_id": null})")->eos_ids.empty());
}

TEST(GenerationConfig, MalformedFilesAreRefusedByName) {
  EXPECT_NE(refusal("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"temperature": "0.6"})").find("temperature is string, expected a number"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"top_k": 2.5})").find("top_k"), std::string::npos);
  EXPECT_NE(refusal(R"({"top_k": -5})").find("top_k is -5"), std::string::npos);
  EXPECT_NE(refusal(R"({"top_k": 99999999999})").find("top_k"), std::string::npos);
  EXPECT_NE(refusal(R"({"do_sample": 1})").find("do_sample"), std::string::npos);
  EXPECT_NE(refusal(R"({"top_p": 1.5})").find("top_p is 1.5"), std::string::npos);
  EXPECT_NE(refusal(R"({"temperature": -1})").find("temperature is -1"), std::string::npos);
  EXPECT_NE(refusal(R"({"eos_token_id": "2"})").find("eos_token_id"), std::string::npos);
  EXPECT_NE(refusal(R"({"eos_token_id": [2, -3]})").find("eos_token_id holds -3"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"max_new_tokens": 0})").find("max_tokens is 0"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::engine
