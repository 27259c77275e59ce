// SPDX-License-Identifier: Apache-2.0
// A model that knows nothing, its logits are drawn, is bound to schemas and to calls of tools: whatever it writes to the end is
// valid by a plain validator, and what is cut is never taken for whole.
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/loop_world.h"
#include "grammar/schema_value.h"
#include "grammar/validator.h"

namespace switchyard::engine {
namespace {

using Kind = OutputConstraint::Kind;
constexpr int kVocab = 512;

class RandomModel final : public ModelPort {
 public:
  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver*) override {
    const int64_t rows = input.logit_row.shape[0];
    logits_.resize(static_cast<size_t>(rows * kVocab));
    for (float& logit : logits_) logit = draw_(random_);
    return model::StepOutput{TensorView::of(logits_.data(), {rows, kVocab})};
  }
  void between_steps() override {}

 private:
  std::mt19937 random_{17};
  std::normal_distribution<float> draw_{0, 2};
  std::vector<float> logits_;
};

class RandomModelTest : public testing::Test {
 protected:
  RandomModelTest()
      : tokenizer_(*text::open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo")),
        pool_(World::pool_options()),
        loop_(model_, *tokenizer_, options(), pool_, tracer_, metrics_) {
    // Strings that nobody ends would be all that is seen.
    for (const char* closing : {"\"", "}", "]"})
      closing_.push_back({tokenizer_->find_token(closing).value(), 6.0f});
  }

  static LoopOptions options() {
    LoopOptions options =
        World::options({.max_step_tokens = 64, .num_blocks = 512, .max_model_len = 800});
    options.experts.clear();
    options.vocab = kVocab;
    return options;
  }

  Received answer(const OutputConstraint& constraint, uint64_t seed) {
    Request request;
    request.prompt_tokens = {300, 301};
    request.sampling.seed = seed;
    request.sampling.max_tokens = 700;
    request.sampling.logit_bias = closing_;
    request.constraint = constraint;
    request.moe_stats = false;
    Received received;
    const auto id = loop_.submit(std::move(request), received.sink(), *loop_.reserve());
    if (!id.ok()) return received;  // a schema that is not supported
    while (loop_.turn()) {
    }
    return received;
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  RandomModel model_;
  Pool pool_;
  Tracer tracer_;
  MetricRegistry metrics_;
  EngineLoop loop_;
  std::vector<TokenBias> closing_;
};

std::string text_of(const Json& json) {
  std::string text;
  JsonWriter(text).value(json);
  return text;
}

TEST_F(RandomModelTest, WritesValuesOfTheSchema) {
  grammar::Random random(3);
  int whole = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Json schema = grammar::draw_schema(random);
    OutputConstraint constraint;
    constraint.kind = Kind::json_schema;
    constraint.schema = text_of(schema);
    const Received received = answer(constraint, seed);
    if (received.finish() != FinishReason::stop) continue;
    ++whole;
    const auto value = grammar::read_json(received.text);
    ASSERT_TRUE(value.has_value()) << constraint.schema << "\n" << received.text;
    EXPECT_TRUE(grammar::is_valid(*value, schema, schema)) << constraint.schema << "\n"
                                                           << received.text;
  }
  EXPECT_GT(whole, 80);
}

TEST_F(RandomModelTest, CallsToolsWithTheirArguments) {
  const Json city = *parse_json(
      R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "units": {"enum": ["C", "F"]}}, "required": ["city", "days", "units"], "additionalProperties": false})",
      "schema");
  OutputConstraint constraint;
  constraint.kind = Kind::tool_calls;
  constraint.tools = {{"weather", text_of(city)}, {"stop", ""}};
  int whole = 0, forecasts = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Received received = answer(constraint, seed);
    if (received.finish() != FinishReason::stop) continue;
    ++whole;
    const std::string_view begin = "<tool_call>\n", end = "\n</tool_call>";
    const std::string& text = received.text;
    ASSERT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
    const auto call =
        grammar::read_json(text.substr(begin.size(), text.size() - begin.size() - end.size()));
    ASSERT_TRUE(call.has_value()) << text;
    const Json& arguments = *call->find("arguments");
    const bool forecast = call->find("name")->as_string() == "weather";
    forecasts += forecast;
    EXPECT_TRUE(forecast ? grammar::is_valid(arguments, city, city) : arguments.is_object())
        << text;
  }
  EXPECT_GT(whole, 80);
  EXPECT_GT(forecasts, 10);
}

}  // namespace
}  // namespace switchyard::engine
