// SPDX-License-Identifier: Apache-2.0
// config.json: what is read, what is refused, and that refusals name the key.
#include "model/config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/capacity_limit.h"
#include "model/family.h"
#include "model/model.h"

namespace switchyard::model {
namespace {

// A small valid config of a family, as key and raw JSON value; a test replaces or adds members.
using Members = std::vector<std::pair<std::string, std::string>>;

Members mixtral() {
  return {{"architectures", R"(["MixtralForCausalLM"])"},
          {"model_type", R"("mixtral")"},
          {"hidden_size", "64"},
          {"vocab_size", "101"},
          {"num_hidden_layers", "2"},
          {"num_attention_heads", "4"},
          {"num_key_value_heads", "2"},
          {"intermediate_size", "32"},
          {"num_local_experts", "8"},
          {"num_experts_per_tok", "2"},
          {"rms_norm_eps", "1e-5"}};
}

void set(Members& members, const std::string& key, const std::string& value) {
  for (auto& [k, v] : members) {
    if (k == key) {
      v = value;
      return;
    }
  }
  members.emplace_back(key, value);
}

Result<ModelConfig> parse(const Members& members) {
  std::string text = "{";
  for (const auto& [key, value] : members) {
    text += fmt::format("{}\"{}\": {}", text.size() > 1 ? ", " : "", key, value);
  }
  SWITCHYARD_ASSIGN(const Json json, parse_json(text + "}", "config.json"));
  SWITCHYARD_ASSIGN(const Family* family, find_family(json));
  SWITCHYARD_ASSIGN(ModelConfig config, family->parse(json));
  config.family = std::string(family->name);
  SWITCHYARD_TRY(config.check());
  return config;
}

TEST(Config, ReadsAValidOne) {
  const Result<ModelConfig> config = parse(mixtral());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->blocks.size(), 2u);
  EXPECT_EQ(config->blocks[0].attention.head_dim, 16);
  EXPECT_EQ(config->blocks[0].router->weigh, Weigh::renormalize);
  EXPECT_DOUBLE_EQ(config->rope.theta, 1e6);
}

struct Refusal {
  const char* name;
  const char* key;
  const char* value;
  Code code;
};

const Refusal kRefusals[] = {
    {"number_as_string", "hidden_size", R"("64")", Code::bad_file},
    {"fraction_as_size", "hidden_size", "64.5", Code::bad_file},
    {"negative_size", "hidden_size", "-64", Code::bad_file},
    {"zero_layers", "num_hidden_layers", "0", Code::bad_file},
    {"absurd_layers", "num_hidden_layers", "100000000000", Code::bad_file},
    {"zero_experts", "num_local_experts", "0", Code::bad_file},
    {"more_picks_than_experts", "num_experts_per_tok", "9", Code::bad_file},
    {"zero_ffn_width", "intermediate_size", "0", Code::bad_file},
    {"heads_not_multiple_of_kv_heads", "num_key_value_heads", "3", Code::bad_file},
    {"zero_heads", "num_attention_heads", "0", Code::bad_file},
    {"width_not_multiple_of_heads", "num_attention_heads", "6", Code::bad_file},
    {"odd_head_size", "head_dim", "15", Code::bad_file},
    {"unknown_activation", "hidden_act", R"("gelu")", Code::unsupported},
    {"quantized", "quantization_config", R"({"quant_method": "fp8"})", Code::unsupported},
    {"unknown_key", "attention_sinks", "true", Code::unsupported},
    {"unknown_number_key", "logit_softcap", "30.0", Code::unsupported},
    {"rope_of_wrong_type", "rope_scaling", "3", Code::bad_file},
    {"rope_type_unknown", "rope_scaling", R"({"rope_type": "su", "factor": 2.0})",
     Code::unsupported},
    {"rope_factor_zero", "rope_scaling", R"({"type": "linear", "factor": 0})", Code::bad_file},
    {"rope_key_unknown", "rope_scaling", R"({"type": "linear", "factor": 2, "beta": 3})",
     Code::unsupported},
    {"rope_theta_zero", "rope_theta", "0", Code::bad_file},
    {"eps_negative", "rms_norm_eps", "-1e-5", Code::bad_file},
    {"eos_of_wrong_type", "eos_token_id", R"("</s>")", Code::bad_file},
    {"flag_as_number", "tie_word_embeddings", "1", Code::bad_file},
    {"unknown_family", "model_type", R"("llama")", Code::unsupported},
    {"family_of_wrong_type", "model_type", "7", Code::bad_file},
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NamesTheKey) {
  Members members = mixtral();
  set(members, GetParam().key, GetParam().value);
  const Result<ModelConfig> config = parse(members);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, GetParam().code) << config.error().message;
  EXPECT_NE(config.error().message.find("config.json"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Config, Refusals, testing::ValuesIn(kRefusals),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(Config, UnknownKeysThatAreOffPass) {
  Members members = mixtral();
  set(members, "some_future_flag", "false");
  set(members, "some_future_object", "{}");
  set(members, "some_future_value", "null");
  EXPECT_TRUE(parse(members).ok());
}

TEST(Config, MissingSizeIsNamed) {
  Members members = mixtral();
  members.erase(members.begin() + 2);
  const Result<ModelConfig> config = parse(members);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("'hidden_size' is missing"), std::string::npos);
}

TEST(Config, WindowOfNullZeroOrAbsentIsNone) {
  for (const char* value : {"null", "0"}) {
    Members members = mixtral();
    set(members, "sliding_window", value);
    const Result<ModelConfig> config = parse(members);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->blocks[0].attention.window, 0);
  }
  EXPECT_EQ(parse(mixtral())->blocks[0].attention.window, 0);
}

TEST(Config, EosMayBeAListOrOne) {
  Members members = mixtral();
  set(members, "eos_token_id", "[2, 7]");
  EXPECT_EQ(parse(members)->eos_ids, (std::vector<int32_t>{2, 7}));
  set(members, "eos_token_id", "2");
  EXPECT_EQ(parse(members)->eos_ids, (std::vector<int32_t>{2}));
}

TEST(Config, NewSpellingOfRopeIsTheOldOne) {
  Members old_way = mixtral(), new_way = mixtral();
  set(old_way, "rope_theta", "5000");
  set(old_way, "rope_scaling", R"({"type": "yarn", "factor": 4.0})");
  set(new_way, "rope_parameters", R"({"rope_type": "yarn", "rope_theta": 5000, "factor": 4.0})");
  const auto a = parse(old_way), b = parse(new_way);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->rope.theta, b->rope.theta);
  EXPECT_EQ(a->rope.factor, b->rope.factor);
  EXPECT_EQ(a->rope.scaling, b->rope.scaling);
}

TEST(CapacityLimit, ReplacesTheRoutersOwn) {
  ModelConfig config = parse(mixtral()).value();
  ASSERT_TRUE(limit_capacity(config, {1.25f, "drop_last", "tutel"}).ok());
  for (const BlockSpec& block : config.blocks) {
    EXPECT_EQ(block.router->capacity_factor, 1.25f);
    EXPECT_EQ(block.router->overflow, Overflow::drop_last);
    EXPECT_EQ(block.router->capacity_rounding, "tutel");
  }
  ASSERT_TRUE(limit_capacity(config, {}).ok());
  EXPECT_EQ(config.blocks[0].router->capacity_factor, 0);
  EXPECT_EQ(config.blocks[0].router->overflow, Overflow::none);
}

TEST(CapacityLimit, RefusesWhatMeansNothing) {
  ModelConfig config = parse(mixtral()).value();
  const auto message = [&](const CapacityLimit& limit) {
    const Status status = limit_capacity(config, limit);
    return status.ok() ? std::string("fine") : status.error().message;
  };
  EXPECT_NE(message({-1}).find("capacity_factor is -1"), std::string::npos);
  EXPECT_NE(message({std::nanf("")}).find("nan"), std::string::npos);
  EXPECT_NE(message({9}).find("at most num_experts (8)"), std::string::npos);
  EXPECT_NE(message({1, "drop_some"}).find("drop_last drop_lowest"), std::string::npos);
  EXPECT_NE(message({1, "drop_last", "near"}).find("ceil floor gshard tutel"), std::string::npos);
  for (BlockSpec& block : config.blocks) block.router.reset();
  EXPECT_NE(message({1}).find("no layer of this model has experts"), std::string::npos);
  EXPECT_EQ(message({0}), "fine");
}

TEST(Config, ParameterCountOfTheDemoModel) {
  const auto config = Model::read_config(std::string(SWITCHYARD_SOURCE_DIR) + "/models/demo");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const ParameterCount count = count_parameters(*config);
  EXPECT_EQ(config->num_moe_blocks(), 6);
  // embedding 8192 x 256 + 6 x (attention 196608 + norms 640 + router 8192 + experts 32 x 3 x 64 x
  // 256) + 256
  EXPECT_EQ(count.total, 8192 * 256 + 6 * (196608 + 640 + 8192 + 32 * 3 * 64 * 256) + 256);
  EXPECT_EQ(count.active, count.total - int64_t{6} * 28 * 3 * 64 * 256);
}

}  // namespace
}  // namespace switchyard::model
