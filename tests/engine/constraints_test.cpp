// SPDX-License-Identifier: Apache-2.0
// Constrained output: refusals before admission, masks in the sampler, and the demonstration model, which writes stories and
// has to write JSON.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "switchyard/switchyard.h"

#include "base/json.h"
#include "engine/loop_world.h"
#include "grammar/grammar.h"

namespace switchyard::engine {
namespace {

using Kind = OutputConstraint::Kind;

OutputConstraint of_schema(std::string schema) {
  OutputConstraint constraint;
  constraint.kind = Kind::json_schema;
  constraint.schema = std::move(schema);
  return constraint;
}

Request constrained(OutputConstraint constraint, int max_tokens) {
  Request request;
  request.prompt_tokens = prompt_of(1, 5);
  request.sampling = greedy(max_tokens);
  request.constraint = std::move(constraint);
  return request;
}

TEST(Constraints, AreRefusedBeforeAdmission) {
  World world;
  const auto refusal = [&](Request request) {
    Received received;
    const auto id = world.try_submit(std::move(request), received.sink());
    EXPECT_FALSE(id.ok());
    EXPECT_FALSE(world.loop.turn());
    if (id.ok()) return std::string();
    EXPECT_EQ(id.error().code, Code::bad_request);
    return id.error().message;
  };
  EXPECT_NE(refusal(constrained(of_schema(R"-({"pattern": "(?=a)"})-"), 5)).find("#/pattern"),
            std::string::npos);
  EXPECT_NE(refusal(constrained(of_schema("{"), 5)), "");
  OutputConstraint none;
  none.kind = Kind::choices;
  EXPECT_NE(refusal(constrained(none, 5)), "");
  none.kind = Kind::tool_calls;
  EXPECT_NE(refusal(constrained(none, 5)), "");
  none.tools = {{"f", R"({"not": {}})"}};
  EXPECT_NE(refusal(constrained(none, 5)).find("f: #/not"), std::string::npos);
  none.kind = static_cast<Kind>(99);
  EXPECT_NE(refusal(constrained(none, 5)), "");
  Request request = constrained(of_schema("{}"), 5);
  request.sampling.ignore_eos = true;
  EXPECT_NE(refusal(request).find("ignore_eos"), std::string::npos);
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 2;
  EXPECT_NE(refusal(request).find("min_tokens"), std::string::npos);
}

TEST(Constraints, MaskTheSampler) {
  Pool pool(World::pool_options());
  Sampler sampler(130, 4, pool);
  const std::vector<int32_t> tokens{1, 2};
  const std::vector<uint64_t> some{uint64_t{1} << 3, 0, 1u << 1}, none{0, 0, 0};
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int top_k : {0, 5}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = top_k;
      params.top_p = temperature > 0 && top_k == 0 ? 0.9f : 1.0f;
      std::vector<float> logits(130, 5.0f);
      logits[129] = -3.0f;
      logits[3] = -4.0f;
      SampleRow row{logits, tokens, 1, &params, {}, 7, some};
      const Pick pick = sampler.pick({&row, 1})[0];
      EXPECT_TRUE(pick.token == 129 || (temperature > 0 && pick.token == 3)) << pick.token;
      std::vector<float> others(130, 5.0f);
      SampleRow stuck{others, tokens, 1, &params, {}, 7, none};
      const Pick no_pick = sampler.pick({&stuck, 1})[0];
      EXPECT_TRUE(no_pick.none_allowed);
      EXPECT_EQ(no_pick.token, -1);
    }
  }
}

TEST(Constraints, EndTheOutputWhenItIsComplete) {
  World world;
  OutputConstraint choices;
  choices.kind = Kind::choices;
  choices.choices = {"no", "yes"};
  Received free, bound, again;
  world.submit(constrained({}, 12), free);
  world.submit(constrained(choices, 12), bound);
  world.submit(constrained(choices, 12), again);
  world.turn_until_idle();
  EXPECT_TRUE(bound.text == "no" || bound.text == "yes") << bound.text;
  EXPECT_EQ(bound.finish(), FinishReason::stop);
  EXPECT_EQ(again.text, bound.text);
  Received alone;  // the neighbours did not change what is free
  world.submit(constrained({}, 12), alone);
  world.turn_until_idle();
  EXPECT_EQ(alone.tokens, free.tokens);
}

/// Whether the text is whole, and whether it could still become so.
std::pair<bool, bool> state_of(const std::string& schema, const std::string& text) {
  const grammar::Grammar grammar = *grammar::Grammar::compile_text(schema);
  grammar::Positions positions(grammar.network());
  int32_t at = positions.start();
  for (const char byte : text) at = positions.step(at, static_cast<uint8_t>(byte));
  return {positions.ends(at), positions.ends(at) || !positions.threads(at).empty()};
}

class DemoConstraints : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.model = SWITCHYARD_SOURCE_DIR "/models/demo";
    options.threads = 2;
    options.max_model_len = 512;
    engine = *Engine::open(options);
  }
  static void TearDownTestSuite() { engine.reset(); }

  static Received answer(OutputConstraint constraint, int max_tokens, float temperature = 0) {
    Request request;
    request.prompt = "Once upon a time";
    request.sampling.temperature = temperature;
    request.sampling.seed = 3;
    request.sampling.max_tokens = max_tokens;
    request.constraint = std::move(constraint);
    Received received;
    EXPECT_TRUE(engine->submit(std::move(request), received.sink()).ok());
    engine->wait_idle();
    return received;
  }

  static std::unique_ptr<Engine> engine;
};
std::unique_ptr<Engine> DemoConstraints::engine;

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
        "minimum": 0, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}},
        "required": ["name", "age", "tags"], "additionalProperties": false})",
    R"({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4})",
    R"({"type": "string", "pattern": "^[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8})?$"})",
    R"({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"at": {"type": "string", "format": "date"}},
        "required": ["at"]}]})",
};

TEST_F(DemoConstraints, WholeOutputIsValid) {
  for (const char* schema : kSchemas) {
    for (const float temperature : {0.0f, 1.0f}) {
      const Received received = answer(of_schema(schema), 200, temperature);
      ASSERT_EQ(received.finish(), FinishReason::stop) << received.text;
      EXPECT_TRUE(state_of(schema, received.text).first) << received.text;
      EXPECT_TRUE(parse_json(received.text, "output").ok()) << received.text;
    }
  }
}

TEST_F(DemoConstraints, CutOutputIsTheBeginningOfSomethingValid) {
  for (const char* schema : kSchemas) {
    for (const int most : {1, 3, 6}) {
      const Received received = answer(of_schema(schema), most);
      const auto [whole, alive] = state_of(schema, received.text);
      EXPECT_TRUE(alive) << received.text;
      EXPECT_EQ(received.finish(), whole ? FinishReason::stop : FinishReason::length)
          << received.text;
    }
  }
}

TEST_F(DemoConstraints, AnyObjectAndToolCalls) {
  OutputConstraint constraint;
  constraint.kind = Kind::json_object;
  const Received object = answer(constraint, 60);
  ASSERT_FALSE(object.text.empty());
  EXPECT_TRUE(state_of(R"({"type": "object"})", object.text).second) << object.text;
  constraint.kind = Kind::tool_calls;
  constraint.tools = {
      {"add", R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})"},
      {"stop", ""}};
  OutputConstraint free = constraint;
  free.instead = OutputConstraint::Instead::text;
  EXPECT_EQ(answer(free, 4).text, answer({}, 4).text) << "free text is what the model says";
  constraint.tools.pop_back();
  const Received call = answer(constraint, 100);
  EXPECT_EQ(call.finish(), FinishReason::stop);
  ASSERT_TRUE(call.text.starts_with("<tool_call>\n{")) << call.text;
  ASSERT_TRUE(call.text.ends_with("}\n</tool_call>")) << call.text;
  const std::string json = call.text.substr(12, call.text.size() - 12 - 13);
  const auto parsed = parse_json(json, "call");
  ASSERT_TRUE(parsed.ok()) << json;
  EXPECT_EQ(parsed->find("name")->as_string(), "add");
  EXPECT_TRUE(parsed->find("arguments")->find("n")->is_integer());
}

}  // namespace
}  // namespace switchyard::engine
