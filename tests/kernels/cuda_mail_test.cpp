// SPDX-License-Identifier: Apache-2.0
// The two ends of a step: arrays and embeddings in, given and from the step before; tokens and counts out, turn by turn.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/cuda/step_mail.h"
#include "kernels/cuda_run.h"
#include "kernels/entry_run.h"

namespace switchyard::kernels {
namespace {

using cases::OnDevice;
using cuda::StepLayout;

constexpr int kTokens = 6, kLive = 4, kVocab = 50;
constexpr int64_t kWidth = 130;

StepLayout layout(int tokens = kTokens) {
  const int each = (tokens + 4) / 4 * 4;
  StepLayout at;
  at.rope_row = at.token + each;
  at.slot = at.rope_row + each;
  at.logit_row = at.slot + each;
  at.seq_offset = at.logit_row + each;
  at.context_len = at.seq_offset + each;
  at.sample = at.context_len + each;
  at.end = at.sample + tokens * 16;
  return at;
}

int32_t token_of(int t) { return t * 17 % kVocab; }

// Every entry differs from every other.
std::vector<int32_t> given_arrays() {
  std::vector<int32_t> arrays;
  for (int i = 0; i < layout().end; ++i) arrays.push_back(1000 + i);
  arrays[StepLayout::kLive] = kLive;
  for (int t = 0; t < kTokens; ++t) arrays[static_cast<size_t>(layout().token + t)] = token_of(t);
  return arrays;
}

class Beginning {
 public:
  explicit Beginning(DType dtype)
      : dtype_(dtype),
        d_table_(cases::on_device(table_, dtype)),
        pick_(std::vector<int32_t>{9, -1, 7, 3, 99, 99}) {}

  /// A step in that turn, with these arrays, or none: then it advances.
  void run(uint32_t turn, const std::vector<int32_t>& words) {
    auto* slot = slots_.as<int32_t>() + turn % cuda::kMailSlots * layout().end;
    std::copy(words.begin(), words.end(), slot);
    const OnDevice on_device(std::vector<uint32_t>{turn, 0});
    cuda::begin_step({.turn = on_device.as<uint32_t>(),
                      .slots = slots_.as<int32_t>(),
                      .slot_words = layout().end,
                      .arrays = arrays_.as<int32_t>(),
                      .layout = layout(),
                      .advances = words.empty(),
                      .pick = pick_.as<int32_t>(),
                      .table = d_table_.data(),
                      .dtype = dtype_,
                      .tokens = kTokens,
                      .width = kWidth,
                      .scale = 0.5f,
                      .x = x_.as<float>()},
                     cases::cuda_stream()->handle());
    cases::synchronize();
  }
  std::vector<int32_t> arrays() const { return arrays_.read<int32_t>(layout().end); }
  std::vector<float> x() const { return x_.read<float>(kTokens * kWidth); }
  std::vector<float> expected_x(const std::vector<int32_t>& tokens) const {
    std::vector<float> expected;
    for (const int32_t t : tokens) {
      for (int64_t i = 0; i < kWidth; ++i)
        expected.push_back(0.5f * table_[static_cast<size_t>(t * kWidth + i)]);
    }
    return expected;
  }

 private:
  DType dtype_;
  std::vector<float> table_ = cases::bf16_values(kVocab * kWidth, 1);
  OnDevice d_table_, pick_;
  PinnedMemory slots_ =
      PinnedMemory::allocate(cuda::kMailSlots * layout().end * 4, "a test").value();
  OnDevice arrays_{nullptr, layout().end * 4}, x_{nullptr, kTokens*kWidth * 4};
};

TEST(CudaMail, AStepBeginsWithWhatIsGivenOrGoesOn) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Beginning step(dtype);
    const std::vector<int32_t> given = given_arrays();
    step.run(6, given);
    EXPECT_EQ(step.arrays(), given);
    std::vector<int32_t> tokens;
    for (int t = 0; t < kTokens; ++t) tokens.push_back(token_of(t));
    EXPECT_EQ(step.x(), step.expected_x(tokens));

    step.run(7, {});
    std::vector<int32_t> expected = given;
    tokens = {9, 0, 7, 3, 9, 9};  // -1 is no token; padding repeats the first
    const StepLayout at = layout();
    for (int t = 0; t < kTokens; ++t) {
      const auto index = [&](int32_t first) { return static_cast<size_t>(first + t); };
      expected[index(at.token)] = tokens[static_cast<size_t>(t)];
      expected[index(at.rope_row)] += 1;
      expected[index(at.slot)] += t < kLive ? 1 : 0;
      expected[index(at.context_len)] += 1;
      cuda::SampleRow row;
      int32_t* const from = expected.data() + at.sample + t * 16;
      std::memcpy(static_cast<void*>(&row), from, sizeof(row));
      ++row.position;
      std::memcpy(from, static_cast<const void*>(&row), sizeof(row));
    }
    EXPECT_EQ(step.arrays(), expected);
    EXPECT_EQ(step.x(), step.expected_x(tokens));
  }
}

// Of many tokens, in rows that are copied 16 bytes at a time and in others.
TEST(CudaMail, ALongStepBeginsWithWhatIsGiven) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [tokens, width] : {std::pair<int, int64_t>{9, 130}, {64, 2048}, {700, 36}}) {
      const StepLayout at = layout(tokens);
      const auto words = static_cast<size_t>(at.end);
      const PinnedMemory slots =
          PinnedMemory::allocate(cuda::kMailSlots * at.end * 4, "a test").value();
      std::vector<int32_t> given(words);
      for (size_t i = 0; i < words; ++i) given[i] = static_cast<int32_t>(1000 + i);
      const std::vector<float> table = cases::bf16_values(kVocab * width, 1);
      std::vector<float> expected;
      for (int t = 0; t < tokens; ++t) {
        given[static_cast<size_t>(at.token + t)] = token_of(t);
        for (int64_t i = 0; i < width; ++i)
          expected.push_back(0.5f * table[static_cast<size_t>(token_of(t) * width + i)]);
      }
      std::copy(given.begin(), given.end(), slots.as<int32_t>() + 3 * at.end);
      const OnDevice turn(std::vector<uint32_t>{7, 0}), on_device = cases::on_device(table, dtype);
      const OnDevice arrays(nullptr, at.end * 4), x(nullptr, tokens * width * 4);
      cuda::begin_step({.turn = turn.as<uint32_t>(),
                        .slots = slots.as<int32_t>(),
                        .slot_words = at.end,
                        .arrays = arrays.as<int32_t>(),
                        .layout = at,
                        .table = on_device.data(),
                        .dtype = dtype,
                        .tokens = tokens,
                        .width = width,
                        .scale = 0.5f,
                        .x = x.as<float>()},
                       cases::cuda_stream()->handle());
      cases::synchronize();
      EXPECT_EQ(arrays.read<int32_t>(at.end), given) << tokens;
      EXPECT_EQ(x.read<float>(tokens * width), expected) << tokens;
    }
  }
}

struct Layers {
  static constexpr int kMost = 7, kRows = 5;
  std::vector<cuda::LayerPicks> layer{{7, 2}, {5, 3}};
  int64_t tokens, stride;
  std::vector<int32_t> expert, count;
  std::vector<float> weight;
  std::vector<int32_t> unusable{0, 0};

  explicit Layers(int64_t t)
      : tokens(t),
        stride((t + 3) * 3),
        expert(static_cast<size_t>(2 * stride), 1),
        count(2 * kMost),
        weight(expert.size(), 0.5f) {
    for (size_t l = 0; l < 2; ++l) {
      for (int64_t i = 0; i < tokens * layer[l].top_k; ++i) {
        const auto at = static_cast<size_t>(static_cast<int64_t>(l) * stride + i);
        expert[at] = static_cast<int32_t>((i * 5 + i / 3) % (layer[l].experts + 1)) - 1;
        if (expert[at] >= 0) ++count[l * kMost + static_cast<size_t>(expert[at])];
      }
    }
  }
  /// Makes token t of the second layer one that could not be scored.
  void spoil(int64_t t) {
    for (int k = 0; k < 3; ++k) {
      const auto at = static_cast<size_t>(stride + t * 3 + k);
      if (expert[at] >= 0) --count[kMost + static_cast<size_t>(expert[at])];
      expert[at] = k;
      weight[at] = 0;
      ++count[kMost + static_cast<size_t>(k)];
    }
    ++unusable[1];
  }
};

TEST(CudaMail, AStepEndsWithTokensAndCounts) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const cuda::ResultLayout at(Layers::kRows, 2, Layers::kMost);
  const OnDevice turn(std::vector<uint32_t>{0, 0});
  const PinnedMemory slots =
      PinnedMemory::allocate(cuda::kMailSlots * at.end * 4, "a test").value();
  std::memset(slots.data(), 0, static_cast<size_t>(slots.size()));
  uint32_t turns = 0;
  for (const int64_t tokens : {1, 4, 33, 2000}) {
    Layers layers(tokens);
    if (tokens > 3) layers.spoil(tokens - 1);
    const std::vector<int32_t> tokens_picked{5, 4, -1, 2, 1};
    const OnDevice expert(layers.expert), weight(layers.weight), pick(tokens_picked);
    const OnDevice live(std::vector<int32_t>{static_cast<int32_t>(tokens)}), layer(layers.layer);
    for (const int rows : {0, 5}) {
      cuda::publish_step({.turn = turn.as<uint32_t>(),
                          .slots = slots.as<int32_t>(),
                          .layout = at,
                          .pick = pick.as<int32_t>(),
                          .rows = rows,
                          .live = live.as<int32_t>(),
                          .layers = 2,
                          .layer = layer.as<cuda::LayerPicks>(),
                          .expert = expert.as<int32_t>(),
                          .weight = weight.as<float>(),
                          .stride = layers.stride},
                         cases::cuda_stream()->handle());
      const int32_t* slot = slots.as<int32_t>() + turns % cuda::kMailSlots * at.end;
      ++turns;
      const Status waited =
          cases::cuda_stream()->wait_until(slot, static_cast<int32_t>(turns), "test");
      ASSERT_TRUE(waited.ok()) << waited.error().message;
      for (int i = 0; i < rows; ++i)
        EXPECT_EQ(slot[at.pick + i], tokens_picked[static_cast<size_t>(i)]);
      for (int l = 0; l < 2; ++l) {
        EXPECT_EQ(slot[at.unusable + l], layers.unusable[static_cast<size_t>(l)]);
        for (int e = 0; e < layers.layer[static_cast<size_t>(l)].experts; ++e) {
          EXPECT_EQ(slot[at.count + l * at.room + e],
                    layers.count[static_cast<size_t>(l * Layers::kMost + e)])
              << tokens << " tokens, layer " << l << ", expert " << e;
        }
      }
    }
  }
  EXPECT_EQ(turn.read<uint32_t>(2), (std::vector<uint32_t>{turns, 0}));
}

TEST(CudaMail, WhatNeverComesIsAnErrorAndNoHang) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const PinnedMemory word = PinnedMemory::allocate(4, "a test").value();
  *word.as<int32_t>() = 0;
  const Status waited = cases::cuda_stream()->wait_until(word.as<int32_t>(), 1, "test");
  ASSERT_FALSE(waited.ok());
  EXPECT_NE(waited.error().message.find("no result"), std::string::npos) << waited.error().message;
  cases::synchronize();
}

}  // namespace
}  // namespace switchyard::kernels
