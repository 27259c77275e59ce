// SPDX-License-Identifier: Apache-2.0
// The rules that loaders of these families are known to get wrong: each is flipped, and the golden
// must notice.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "model/golden_case.h"
#include "model/runner.h"
#include "tensor/compare.h"

namespace switchyard::test {
namespace {

using model::ModelConfig;

struct Gotcha {
  const char* name;
  const char* folder;  ///< below tests/golden/families
  std::function<void(ModelConfig&)> flip;
};

void for_routers(ModelConfig& config, const std::function<void(RouterSpec&)>& change) {
  for (model::BlockSpec& block : config.blocks) {
    if (block.router) change(*block.router);
  }
}

void for_attention(ModelConfig& config, const std::function<void(attention::GqaSpec&)>& change) {
  for (model::BlockSpec& block : config.blocks) change(block.attention);
}

const auto kWeighRaw = [](ModelConfig& c) {
  for_routers(c, [](RouterSpec& r) { r.weigh = Weigh::raw; });
};
const auto kRenormalize = [](ModelConfig& c) {
  for_routers(c, [](RouterSpec& r) { r.weigh = Weigh::renormalize; });
};
const auto kOneMorePick = [](ModelConfig& c) { for_routers(c, [](RouterSpec& r) { ++r.top_k; }); };
const auto kNoWindow = [](ModelConfig& c) {
  for_attention(c, [](attention::GqaSpec& a) { a.window = 0; });
};
const auto kWindow = [](ModelConfig& c) {
  for_attention(c, [](attention::GqaSpec& a) { a.window = 8; });
};

const Gotcha kGotchas[] = {
    {"renormalization_dropped", "qwen3_moe", kWeighRaw},
    {"renormalization_forced_qwen3", "qwen3_moe/variants/norm_topk_false", kRenormalize},
    {"renormalization_forced_qwen2", "qwen2_moe", kRenormalize},
    {"renormalization_forced_olmoe", "olmoe", kRenormalize},
    {"renormalization_forced_deepseek", "deepseek", kRenormalize},
    {"mixtral_weights_not_renormalized", "mixtral", kWeighRaw},
    {"granite_softmax_over_all_experts", "granitemoe", kWeighRaw},
    {"one_pick_too_many", "mixtral", kOneMorePick},
    {"qkv_clip_missing", "olmoe",
     [](ModelConfig& c) { for_attention(c, [](attention::GqaSpec& a) { a.clip = 0; }); }},
    {"score_scale_from_width_over_heads", "qwen3_moe",
     [](ModelConfig& c) {
       const int width = c.width;
       for_attention(c, [width](attention::GqaSpec& a) {
         a.scale = 1.0f / std::sqrt(static_cast<float>(width) / static_cast<float>(a.heads));
       });
     }},
    {"rope_theta_default_instead_of_config", "mixtral",
     [](ModelConfig& c) { c.rope.theta = 10000; }},
    {"rope_on_part_of_the_head", "qwen3_moe", [](ModelConfig& c) { c.rope.rotary_dim /= 2; }},
    {"window_imagined", "mixtral", kWindow},
    {"window_missed", "mixtral/variants/sliding", kNoWindow},
    {"window_counts_without_self", "mixtral/variants/sliding",
     [](ModelConfig& c) { for_attention(c, [](attention::GqaSpec& a) { ++a.window; }); }},
    {"shared_expert_gate_missed", "qwen2_moe",
     [](ModelConfig& c) {
       for (model::BlockSpec& block : c.blocks) block.shared.gated = false;
     }},
    {"embedding_multiplier_missed", "granitemoe", [](ModelConfig& c) { c.embedding_scale = 1; }},
    {"residual_multiplier_missed", "granitemoe", [](ModelConfig& c) { c.residual_scale = 1; }},
    {"logits_multiplied_not_divided", "granitemoe",
     [](ModelConfig& c) { c.logit_scale = 1 / c.logit_scale; }},
    {"attention_multiplier_missed", "granitemoe",
     [](ModelConfig& c) {
       for_attention(c, [](attention::GqaSpec& a) {
         a.scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
       });
     }},
    {"norm_eps_default_instead_of_config", "qwen3_moe", [](ModelConfig& c) { c.norm_eps = 1e-6f; }},
    {"qk_norm_over_the_wrong_width", "olmoe",
     [](ModelConfig& c) {
       for_attention(c, [](attention::GqaSpec& a) { a.qk_norm = QkNorm::per_head; });
     }},
    {"qk_norm_missed", "qwen3_moe",
     [](ModelConfig& c) {
       for_attention(c, [](attention::GqaSpec& a) { a.qk_norm = QkNorm::none; });
     }},
    {"qkv_bias_missed", "qwen2_moe",
     [](ModelConfig& c) { for_attention(c, [](attention::GqaSpec& a) { a.qkv_bias = false; }); }},
};

class Gotchas : public testing::TestWithParam<Gotcha> {};

// A flipped rule is noticed by the loader (a tensor no longer fits), or shows in the logits.
TEST_P(Gotchas, FlippingTheRuleIsNoticed) {
  const Gotcha& gotcha = GetParam();
  const std::string folder =
      std::string(SWITCHYARD_SOURCE_DIR) + "/tests/golden/families/" + gotcha.folder;
  const Result<GoldenCase> golden = GoldenCase::open(folder);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  Result<ModelConfig> config = model::Model::read_config(golden->layouts()[0]);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::string last = std::to_string(golden->num_sequences() - 1);
  const auto ids = golden->integers("ids_" + last);
  const auto expected = golden->floats("logits_" + last);
  const auto error_of = [&](const ModelConfig& c) -> Result<double> {
    SWITCHYARD_ASSIGN(const auto runner, Runner::load(golden->layouts()[0], c, DType::f32));
    SWITCHYARD_ASSIGN(const RunOutput out, runner->run(ids, 0));
    return compare(out.logits, expected).relative_error;
  };
  const Result<double> before = error_of(*config);
  ASSERT_TRUE(before.ok()) << before.error().message;
  EXPECT_LE(*before, 1e-4);
  gotcha.flip(*config);
  const Result<double> after = error_of(*config);
  if (!after.ok()) {
    EXPECT_EQ(after.error().code, Code::bad_file) << after.error().message;
    return;
  }
  EXPECT_GT(*after, 1e-3) << "the golden does not notice that the rule was flipped";
}

TEST(SelectionBias, IsRefusedByNameWhereNoTensorHoldsIt) {
  const auto golden =
      GoldenCase::open(std::string(SWITCHYARD_SOURCE_DIR) + "/tests/golden/families/mixtral");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  Result<ModelConfig> config = model::Model::read_config(golden->layouts()[0]);
  ASSERT_TRUE(config.ok()) << config.error().message;
  for_routers(*config, [](RouterSpec& r) { r.selection_bias = true; });
  const auto runner = Runner::load(golden->layouts()[0], *config, DType::f32);
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().code, Code::unsupported);
  EXPECT_NE(runner.error().message.find("RouterSpec::selection_bias"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Wave1, Gotchas, testing::ValuesIn(kGotchas),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace switchyard::test
