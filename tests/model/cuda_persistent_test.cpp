// SPDX-License-Identifier: Apache-2.0
// Decode steps of one sequence as a single launch for all layers, beside the same steps launched layer by layer: random weights in
// the shapes of published models, contexts on both sides of every way in which attention is cut.
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/random.h"
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/l2_memory.h"
#include "model/devices.h"
#include "model/model.h"
#include "tensor/compare.h"

namespace switchyard::test {
namespace {

constexpr DeviceId kDevice{DeviceId::Kind::cuda, 0};
constexpr int kBlock = 16, kMaxBlocks = 640;  // 10240 positions
constexpr int kVocab = 2048;

#define SWITCHYARD_SKIP_WITHOUT_CUDA()                                                    \
  if (const auto bytes = model::find_device(kDevice)->available_bytes(0, 0); !bytes.ok()) \
  GTEST_SKIP() << bytes.error().message

// The picks of a step's layers, and their weights.
class Picks final : public model::RoutingObserver {
 public:
  void on_routing(int, const Routing& routing) override {
    const int64_t count = routing.expert.shape.elements();
    const auto* expert = routing.expert.as<int32_t>();
    const auto* weight = routing.weight.as<float>();
    for (int64_t i = 0; i < count; ++i) weights_.back()[expert[i]] = weight[i];
    weights_.emplace_back();
  }
  void clear() { weights_.assign(1, {}); }
  bool empty() const { return weights_.size() == 1; }

  /// The same experts in every layer; if not, those of the first layer that differs are nearly tied.
  static bool same(const Picks& a, const Picks& b) {
    for (size_t l = 0; l < a.weights_.size(); ++l) {
      std::vector<float> only;
      for (const auto& [expert, weight] : a.weights_[l]) {
        if (!b.weights_[l].contains(expert)) only.push_back(weight);
      }
      for (const auto& [expert, weight] : b.weights_[l]) {
        if (!a.weights_[l].contains(expert)) only.push_back(weight);
      }
      if (only.empty()) continue;
      const auto [least, most] = std::ranges::minmax(only);
      EXPECT_EQ(only.size(), 2) << "layer " << l;
      EXPECT_LE(most, least * 1.02f) << "layer " << l << ": picks that differ are not nearly tied";
      return false;
    }
    return true;
  }

 private:
  std::vector<std::map<int, float>> weights_{1};
};

class Sequence {
 public:
  Sequence(const std::string& config, bool persistent)
      : pool_(PoolOptions{.num_threads = 2, .pin = false}) {
    const Result<Json> json = parse_json(config, "a test's model");
    EXPECT_TRUE(json.ok()) << json.error().message;
    const auto read = model::Model::read_config_json(*json);
    EXPECT_TRUE(read.ok()) << read.error().message;
    const model::LoadOptions options{.max_step_tokens = 512,
                                     .max_sequences = 2,
                                     .block_tokens = kBlock,
                                     .num_kv_blocks = kMaxBlocks,
                                     .max_blocks_per_sequence = kMaxBlocks,
                                     .random_weights = true,
                                     .on_progress = {}};
    ::setenv("SWITCHYARD_PERSISTENT", persistent ? "1" : "0", 1);
    auto model = model::Model::load("", *read, options, Stream(kDevice, pool_));
    ::unsetenv("SWITCHYARD_PERSISTENT");
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (model.ok()) model_ = *std::move(model);
    for (int i = 0; i < kMaxBlocks; ++i) table_.push_back(i * 7 % kMaxBlocks);
  }

  /// The logits of the last of `count` new tokens.
  std::vector<float> step(int count) {
    std::vector<int32_t> token, position, offset{0, count}, context{length_}, row{count - 1};
    for (int i = 0; i < count; ++i) {
      position.push_back(length_++);
      const uint32_t random = philox4x32({static_cast<uint32_t>(length_), 0, 0, 0}, {5, 5})[0];
      token.push_back(static_cast<int32_t>(random % kVocab));
    }
    const auto all = [](std::vector<int32_t>& v) {
      return TensorView::of(v.data(), {std::ssize(v)});
    };
    const model::StepInput input{.token = all(token),
                                 .position = all(position),
                                 .seq_offset = all(offset),
                                 .context_len = all(context),
                                 .block_table = TensorView::of(table_.data(), {1, kMaxBlocks}),
                                 .logit_row = all(row),
                                 .decode_only = count == 1};
    picks_.clear();
    const auto out = model_->forward(input, &picks_);
    EXPECT_TRUE(out.ok()) << out.error().message;
    if (!out.ok()) return {};
    const auto* logits = out->logits.as<float>();
    return {logits, logits + kVocab};
  }
  const Picks& picks() const { return picks_; }
  model::GuessCounts guesses() const { return model_->guesses(); }
  void fill_to(int length) {
    while (length_ < length) step(std::min(512, length - length_));
  }
  int64_t placed_bytes() const { return model_->memory().placed; }

 private:
  Pool pool_;
  std::unique_ptr<model::Model> model_;
  std::vector<int32_t> table_;
  Picks picks_;
  int length_ = 0;
};

struct Case {
  const char* name;
  std::string config;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// What attention adds outweighs the stream before it, from which picks are guessed.
std::string outweighed(int width, int layers, int heads, double attention_scale, int experts,
                       int picks, int ffn_width) {
  return fmt::format(
      R"({{"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe",
      "hidden_act": "silu", "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
      "num_key_value_heads": 8, "attention_bias": false, "vocab_size": 2048,
      "num_local_experts": {}, "num_experts_per_tok": {}, "intermediate_size": {},
      "attention_multiplier": {}, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
      "residual_multiplier": 20.0, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "max_position_embeddings": 16384, "tie_word_embeddings": true}})",
      width, layers, heads, experts, picks, ffn_width, attention_scale);
}

const Case kCases[] = {
    {"qwen3",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 6144, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 40960, "tie_word_embeddings": false})"},
    {"olmoe",
     R"({"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
      "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16,
      "num_key_value_heads": 16, "attention_bias": false, "clip_qkv": 3.0, "vocab_size": 2048,
      "num_experts": 64, "num_experts_per_tok": 8, "intermediate_size": 1024,
      "norm_topk_prob": false, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    {"mixtral",
     R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
      "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 2048, "num_local_experts": 8,
      "num_experts_per_tok": 2, "intermediate_size": 3584, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "sliding_window": null, "max_position_embeddings": 32768,
      "tie_word_embeddings": false})"},
    {"small",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 12,
      "num_key_value_heads": 4, "head_dim": 64, "attention_bias": true, "vocab_size": 2048,
      "num_experts": 160, "num_experts_per_tok": 5, "moe_intermediate_size": 96,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    // One layer; a block's share of the down product crosses rows of blocks.
    {"pieces",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 12,
      "num_key_value_heads": 4, "head_dim": 64, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 33, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
      "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    {"most_experts",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 64, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 256, "num_experts_per_tok": 16, "moe_intermediate_size": 192,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    // Large experts whose down product is cut inside of rows: its runs are not by sides.
    {"uneven_runs",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 128, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 1088,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    {"wrong_guesses", outweighed(1024, 3, 16, 0.125, 64, 8, 320)},
    // A whole item of eight stages as guessed, and a part of the next one.
    {"wrong_second_items", outweighed(2048, 2, 16, 0.088, 64, 8, 512)},
    // 128 items: the last blocks have none, and no part of the down product either.
    {"wrong_few_items", outweighed(1024, 3, 16, 0.125, 8, 2, 1024)},
    // Items of two stages, which leave half of the groups out, and as many picks as there can be.
    {"wrong_short_items", outweighed(512, 3, 8, 0.125, 64, 16, 352)},
    {"narrowest",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 64, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 16, "num_experts_per_tok": 1, "moe_intermediate_size": 128,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"},
    // Two warps make the picks: nothing is guessed.
    {"nine_of_128",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12,
      "num_key_value_heads": 4, "head_dim": 64, "attention_bias": false, "vocab_size": 2048,
      "num_experts": 128, "num_experts_per_tok": 9, "moe_intermediate_size": 192,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "intermediate_size": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
      "max_position_embeddings": 16384, "tie_word_embeddings": false})"}};

class CudaPersistent : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    SWITCHYARD_SKIP_WITHOUT_CUDA();
    if (!cuda::attend_is_sm90()) GTEST_SKIP() << "for sm_90 alone";
  }
};

// Both ways round to bf16 at the same places, so what differs is the order of sums. Where that tips a pick between nearly tied
// experts, nothing bounds the logits.
void expect_those_of_layer_by_layer(const Case& which, std::initializer_list<int> contexts,
                                    int steps_each) {
  std::optional<Sequence> one, other;
  const auto begin = [&] {
    one.emplace(which.config, true);
    other.emplace(which.config, false);
  };
  const auto fill_to = [&](int length) {
    one->fill_to(length);
    other->fill_to(length);
  };
  begin();
  double worst = 0;
  int tipped = 0, steps = 0;
  for (const int context : contexts) {
    fill_to(context);
    for (int i = 0; i < steps_each; ++i, ++steps) {
      const auto found = one->step(1), expected = other->step(1);
      ASSERT_EQ(found.size(), expected.size());
      ASSERT_FALSE(one->picks().empty());
      if (!Picks::same(one->picks(), other->picks())) {
        ++tipped;
        begin();  // keys and values of later layers are not the same either
        fill_to(context + i + 1);
        continue;
      }
      const Comparison c = compare(found, expected);
      EXPECT_LE(c.relative_error, 0.02) << "position " << context + i << ": " << c.text();
      worst = std::max(worst, c.relative_error);
    }
  }
  EXPECT_LE(tipped, std::max(1, steps / 8));
  EXPECT_GT(worst, 0) << "the same bits: these steps, too, were launched layer by layer";
  std::printf("%s: one launch off by at most %.5f; %d of %d steps with other picks\n", which.name,
              worst, tipped, steps);
}

TEST_P(CudaPersistent, StepsAreThoseOfLayerByLayer) {
  expect_those_of_layer_by_layer(GetParam(), {0, 14, 63, 126, 200, 254, 511, 700, 2000, 4094}, 4);
}

// What scripts/gpu_sanitize.txt runs.
TEST_P(CudaPersistent, AFewSteps) { expect_those_of_layer_by_layer(GetParam(), {0, 150}, 2); }

TEST_P(CudaPersistent, CountsGuessesRightAndWrong) {
  const std::string name = GetParam().name;
  Sequence sequence(GetParam().config, true);
  for (int i = 0; i < 20; ++i) sequence.step(1);
  const model::GuessCounts seen = sequence.guesses();
  const auto all = static_cast<double>(seen.right + seen.wrong);
  if (name == "small" || name == "most_experts" || name == "nine_of_128") {
    EXPECT_EQ(all, 0) << "guesses are for at most 128 experts, and for picks of one warp";
    return;
  }
  ASSERT_GT(all, 0);
  const double right = static_cast<double>(seen.right) / all;
  std::printf("%s: %.3f of %.0f picks as guessed\n", name.c_str(), right, all);
  if (name.starts_with("wrong")) {
    EXPECT_LT(right, 0.8);
  } else if (name != "narrowest") {
    EXPECT_GT(right, 0.6);
  }
}

TEST_P(CudaPersistent, RepeatedStepsGiveTheSameBits) {
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 3; ++round) {
    Sequence sequence(GetParam().config, true);
    for (int i = 0; i < 40; ++i) {
      if (i == 20) sequence.fill_to(1000);
      auto logits = sequence.step(1);
      if (round == 0) {
        first.push_back(std::move(logits));
      } else {
        EXPECT_EQ(logits, first[i]) << "round " << round << ", step " << i;
      }
    }
  }
}

// Models whose experts are large enough to be placed by sides of the L2.
class CudaPlaced : public CudaPersistent {};

TEST_P(CudaPlaced, SidesOfTheL2ChangeNoBits) {
  Result<CudaStream> stream = CudaStream::open(0);
  ASSERT_TRUE(stream.ok());
  const auto memory = L2Memory::allocate(int64_t{256} << 20, "a test", *stream);
  ASSERT_TRUE(memory.ok());
  ASSERT_NE(memory->sides().mask, 0U) << "with sides that are not known both models are the same";
  std::vector<std::vector<float>> first;
  for (const char* sides : {"0", "1"}) {
    ::setenv("SWITCHYARD_L2_SIDES", sides, 1);
    Sequence sequence(GetParam().config, true);
    ::unsetenv("SWITCHYARD_L2_SIDES");
    EXPECT_EQ(sequence.placed_bytes() > 0, sides[0] == '1');
    for (int i = 0; i < 20; ++i) {
      // A prompt of so many tokens that the gate's launch asks for experts' weights too.
      if (i == 10) sequence.fill_to(10 + 512);
      auto logits = sequence.step(1);
      if (first.size() < 20) {
        first.push_back(std::move(logits));
      } else {
        EXPECT_EQ(logits, first[i]) << "step " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaPersistent, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<Case> placed_cases() {
  std::vector<Case> placed;
  for (const Case& each : kCases) {
    const std::string_view name = each.name;
    if (name == "olmoe" || name == "mixtral" || name == "uneven_runs") placed.push_back(each);
  }
  return placed;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaPlaced, testing::ValuesIn(placed_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace switchyard::test
