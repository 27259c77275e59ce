// SPDX-License-Identifier: Apache-2.0
// Name patterns, and the faults of a checkpoint that does not fit its config.
#include "model/tensor_map.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "checkpoint/source.h"
#include "model/model.h"

namespace switchyard::model {
namespace {

using checkpoint::TensorEntry;

TEST(MatchName, FillsLayerAndExpert) {
  const TensorName name{TensorRole::expert_up, "model.layers.{L}.mlp.experts.{E}.up_proj.weight"};
  const auto place = match_name(name, "model.layers.12.mlp.experts.103.up_proj.weight");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->layer, 12);
  EXPECT_EQ(place->expert, 103);
}

TEST(MatchName, RefusesNearMisses) {
  const TensorName name{TensorRole::q, "model.layers.{L}.self_attn.q_proj.weight"};
  for (const char* text :
       {"model.layers.012.self_attn.q_proj.weight", "model.layers.-1.self_attn.q_proj.weight",
        "model.layers..self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight.weight",
        "model.layers.99999999999.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj",
        ""}) {
    EXPECT_FALSE(match_name(name, text)) << text;
  }
}

// The golden Mixtral's tensors as a list that a test damages, over headers alone (data stays null).
class Faults : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder =
        std::string(SWITCHYARD_SOURCE_DIR) + "/tests/golden/families/mixtral";
    auto config = Model::read_config(folder);
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
    auto source = checkpoint::open_checkpoint(folder + "/model.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_ = *std::move(source);
    entries_.assign(source_.tensors().begin(), source_.tensors().end());
  }

  std::vector<Fault> faults() {
    auto file = MappedFile::open(source_.files()[0]);
    const checkpoint::Source damaged({std::make_shared<MappedFile>(*std::move(file))}, entries_,
                                     "safetensors");
    std::vector<Fault> found;
    TensorMap::build(*find_family_named("mixtral"), config_, damaged, found);
    return found;
  }
  TensorEntry& entry(const std::string& name) {
    for (TensorEntry& e : entries_) {
      if (e.name == name) return e;
    }
    ADD_FAILURE() << name;
    return entries_[0];
  }

  ModelConfig config_;
  checkpoint::Source source_;
  std::vector<TensorEntry> entries_;
};

constexpr const char* kExpert = "model.layers.1.block_sparse_moe.experts.3.w1.weight";

TEST_F(Faults, NoneInASoundCheckpoint) { EXPECT_TRUE(faults().empty()); }

TEST_F(Faults, RenamedExpertIsUnexpectedAndMissing) {
  entry(kExpert).name = "model.layers.1.block_sparse_moe.experts.3.w1.weights";
  const auto found = faults();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].fault_class, "unexpected_tensor");
  EXPECT_EQ(found[1].fault_class, "missing_tensor");
  EXPECT_NE(found[1].error.message.find(kExpert), std::string::npos) << found[1].error.message;
}

TEST_F(Faults, ExpertBeyondTheCountIsUnexpected) {
  TensorEntry extra = entry(kExpert);
  extra.name = "model.layers.1.block_sparse_moe.experts.8.w1.weight";
  entries_.push_back(extra);
  const auto found = faults();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].fault_class, "unexpected_tensor");
}

TEST_F(Faults, LayerBeyondTheCountIsUnexpected) {
  TensorEntry extra = entry("model.layers.1.input_layernorm.weight");
  extra.name = "model.layers.2.input_layernorm.weight";
  entries_.push_back(extra);
  ASSERT_EQ(faults().size(), 1u);
}

TEST_F(Faults, TheSameWeightInTwoSpellingsIsADuplicate) {
  TensorEntry extra = entry(kExpert);
  extra.name = "model.layers.1.mlp.experts.3.w1.weight";
  entries_.push_back(extra);
  const auto found = faults();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].fault_class, "duplicate_tensor");
}

TEST_F(Faults, WrongShapeSaysBoth) {
  entry(kExpert).shape = Shape{24, 63};
  const auto found = faults();
  ASSERT_EQ(found.size(), 2u);  // and its place is empty
  EXPECT_EQ(found[0].fault_class, "wrong_shape");
  EXPECT_NE(found[0].error.message.find("[24, 64]"), std::string::npos);
  EXPECT_NE(found[0].error.message.find("[24, 63]"), std::string::npos);
}

TEST_F(Faults, WrongDtypeIsRefused) {
  entry(kExpert).dtype = DType::i8;
  EXPECT_EQ(faults()[0].fault_class, "wrong_shape");
}

TEST_F(Faults, EveryTensorIsNeeded) {
  const std::vector<TensorEntry> whole = entries_;
  for (size_t i = 0; i < whole.size(); ++i) {
    entries_ = whole;
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto found = faults();
    ASSERT_EQ(found.size(), 1u) << whole[i].name;
    EXPECT_EQ(found[0].fault_class, "missing_tensor");
  }
}

}  // namespace
}  // namespace switchyard::model
