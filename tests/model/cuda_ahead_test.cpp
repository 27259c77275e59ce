// SPDX-License-Identifier: Apache-2.0
// Steps that a device runs ahead of their time give what they give in their turn, whatever comes of the caller's expectation.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/devices.h"
#include "model/model.h"

namespace switchyard::test {
namespace {

constexpr DeviceId kDevice{DeviceId::Kind::cuda, 0};
constexpr const char* kDemo = SWITCHYARD_SOURCE_DIR "/models/demo";
constexpr int kBlock = 16, kMaxBlocks = 6, kMost = 8, kVocab = 2048;  // tokens below that

// What became of each layer's picks.
class Counts final : public model::RoutingObserver {
 public:
  void on_routing(int layer, const Routing& routing) override {
    const auto* load = routing.demand.as<int32_t>();
    seen.push_back(layer);
    seen.insert(seen.end(), load, load + routing.demand.shape.elements());
  }
  bool wants_picks() const override { return false; }
  std::vector<int32_t> seen;
};

struct Sequence {
  std::vector<int32_t> tokens;
  int place = 0;  ///< whose blocks it has
  float temperature = 0;
  int top_k = 0;
};

// Decodes sequences that come and go, by a script that depends on the tokens alone.
class Caller {
 public:
  /// Of the demonstration model, or of random weights for a config.json.
  Caller(const char* json, DType dtype, bool expects)
      : expects_(expects), pool_(PoolOptions{.num_threads = 2, .pin = false}) {
    const model::LoadOptions options{.dtype = dtype,
                                     .max_step_tokens = 64,
                                     .max_sequences = kMost,
                                     .block_tokens = kBlock,
                                     .num_kv_blocks = kMost * kMaxBlocks,
                                     .max_blocks_per_sequence = kMaxBlocks,
                                     .random_weights = json != nullptr,
                                     .on_progress = {}};
    const auto config = json != nullptr
                            ? model::Model::read_config_json(*parse_json(json, "a test's model"))
                            : model::Model::read_config(kDemo);
    auto model =
        model::Model::load(json != nullptr ? "" : kDemo, *config, options, Stream(kDevice, pool_));
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (model.ok()) model_ = *std::move(model);
  }

  void add(int place, int tokens, float temperature, int top_k = 0) {
    Sequence sequence{{}, place, temperature, top_k};
    for (int i = 0; i < tokens; ++i) sequence.tokens.push_back((place * 977 + i * 31) % kVocab);
    sequences_.push_back(std::move(sequence));
    step({std::ssize(sequences_) - 1}, tokens, false);
  }
  void remove(int place) {
    std::erase_if(sequences_, [&](const Sequence& s) { return s.place == place; });
  }
  void decode(int steps) {
    std::vector<std::ptrdiff_t> all;
    for (size_t i = 0; i < sequences_.size(); ++i) all.push_back(static_cast<std::ptrdiff_t>(i));
    for (int i = 0; i < steps; ++i) step(all, 1, expects_);
  }
  /// Steps in turn until the model has forgotten that a step ahead was for nothing, or had to be made again.
  void rest() {
    for (int i = 0; i < 4; ++i) {
      add(kMost - 1, 3, 0);
      for (int k = 0; k < 80; ++k) step({std::ssize(sequences_) - 1}, 1, false);
      remove(kMost - 1);
    }
  }
  /// The caller thinks of another token than the picked one.
  void change_last(int place) {
    for (Sequence& s : sequences_)
      if (s.place == place) s.tokens.back() = (s.tokens.back() + 1) % kVocab;
  }
  void read_logits() {
    const auto logits = model_->read_logits();
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    EXPECT_EQ(logits->shape[0], std::ssize(sequences_));
    const auto* from = logits->as<float>();
    logits_.insert(logits_.end(), from, from + logits->shape.elements());
  }

  const std::vector<int32_t>& picks() const { return picks_; }
  const std::vector<float>& logits() const { return logits_; }
  const std::vector<int32_t>& counts() const { return counts_.seen; }

 private:
  void step(const std::vector<std::ptrdiff_t>& which, int count, bool goes_on) {
    std::vector<int32_t> token, position, offset{0}, context, table, row;
    std::vector<model::SampleSpec> sample;
    for (const auto i : which) {
      const Sequence& s = sequences_[static_cast<size_t>(i)];
      const auto length = static_cast<int32_t>(s.tokens.size());
      context.push_back(length - count);
      for (int32_t t = length - count; t < length; ++t) {
        token.push_back(s.tokens[static_cast<size_t>(t)]);
        position.push_back(t);
      }
      offset.push_back(static_cast<int32_t>(token.size()));
      row.push_back(offset.back() - 1);
      for (int b = 0; b < kMaxBlocks; ++b)
        table.push_back((s.place * kMaxBlocks + b) * 5 % (kMost * kMaxBlocks));
      sample.push_back({.temperature = s.temperature,
                        .top_k = s.top_k,
                        .seed = static_cast<uint64_t>(s.place),
                        .position = s.tokens.size(),
                        .seen = {}});
    }
    const auto all = [](std::vector<int32_t>& v) {
      return TensorView::of(v.data(), {std::ssize(v)});
    };
    const model::StepInput input{
        .token = all(token),
        .position = all(position),
        .seq_offset = all(offset),
        .context_len = all(context),
        .block_table = TensorView::of(table.data(), {std::ssize(which), kMaxBlocks}),
        .logit_row = all(row),
        .decode_only = count == 1,
        .goes_on_unless = goes_on ? &never_ : nullptr,
        .sample = sample};
    const auto out = model_->forward(input, &counts_);
    ASSERT_TRUE(out.ok()) << out.error().message;
    ASSERT_EQ(out->pick.shape[0], std::ssize(which));
    for (size_t i = 0; i < which.size(); ++i) {
      const int32_t pick = out->pick.as<int32_t>()[i];
      picks_.push_back(pick);
      sequences_[static_cast<size_t>(which[i])].tokens.push_back(std::max(pick, 0));
    }
  }

  bool expects_;
  std::atomic<bool> never_{false};
  Pool pool_;
  std::unique_ptr<model::Model> model_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> picks_;
  std::vector<float> logits_;
  Counts counts_;
};

void play(Caller& caller) {
  caller.add(0, 5, 0);
  caller.decode(30);  // over two borders of blocks
  caller.add(1, 9, 0.8f);
  caller.decode(5);
  caller.add(2, 2, 1.5f, 20);
  caller.decode(12);
  caller.read_logits();  // of a step that another has followed
  caller.rest();
  caller.decode(3);
  caller.change_last(1);
  caller.decode(2);
  caller.rest();
  caller.decode(6);
  caller.remove(0);  // what ran ahead wrote to its blocks
  caller.decode(4);
  caller.add(0, 20, 0);  // and this has them now
  caller.rest();
  caller.decode(2);
  caller.read_logits();
  caller.rest();
  for (int place = 3; place < 7; ++place) caller.add(place, 3 + place, place % 2 == 0 ? 0 : 1.0f);
  caller.decode(17);  // seven, padded or not
  caller.remove(1);
  caller.remove(2);
  caller.decode(1);  // of five in place of seven
  caller.rest();
  caller.decode(6);
  for (int place = 3; place < 7; ++place) caller.remove(place);
  caller.decode(10);
}

void expect_the_same(const char* json, DType dtype) {
  Caller in_turn(json, dtype, false), ahead(json, dtype, true);
  play(in_turn);
  play(ahead);
  EXPECT_GT(in_turn.picks().size(), 200u);
  EXPECT_EQ(ahead.picks(), in_turn.picks());
  EXPECT_FALSE(in_turn.logits().empty());
  EXPECT_EQ(ahead.logits(), in_turn.logits());
  EXPECT_EQ(ahead.counts(), in_turn.counts());
}

#define SWITCHYARD_SKIP_WITHOUT_CUDA()                                                    \
  if (const auto bytes = model::find_device(kDevice)->available_bytes(0, 0); !bytes.ok()) \
  GTEST_SKIP() << bytes.error().message

TEST(CudaAhead, StepsAheadAreTheStepsInTurn) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    expect_the_same(nullptr, dtype);
  }
}

// On Hopper its steps of one sequence are one launch for all layers, and its heads another.
TEST(CudaAhead, AlsoThoseOfFewLaunches) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  expect_the_same(
      R"({"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
      "hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 16,
      "num_key_value_heads": 16, "attention_bias": false, "clip_qkv": 3.0, "vocab_size": 2048,
      "num_experts": 64, "num_experts_per_tok": 8, "intermediate_size": 256,
      "norm_topk_prob": false, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null,
      "max_position_embeddings": 4096, "tie_word_embeddings": false})",
      DType::bf16);
}

}  // namespace
}  // namespace switchyard::test
