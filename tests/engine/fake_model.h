// SPDX-License-Identifier: Apache-2.0
// FakeModel: a scripted model with a real paged cache. It writes each token into the block that the
// table names and computes logits from what it reads back, so a wrong block, a lost token or a
// skipped recomputation changes the text.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "engine/model_port.h"

namespace switchyard::engine {

class FakeModel final : public ModelPort {
 public:
  static constexpr int kVocab = 512, kExperts = 8, kTopK = 2, kMoeLayers = 3;

  FakeModel(int num_blocks, int block_tokens, int max_step_tokens, int max_sequences)
      : block_tokens_(block_tokens),
        cache_(static_cast<size_t>(num_blocks * block_tokens), -1),
        logits_(static_cast<size_t>(max_sequences * kVocab)),
        expert_(static_cast<size_t>(max_step_tokens * kTopK)),
        weight_(static_cast<size_t>(max_step_tokens * kTopK), 0.5f),
        load_(kExperts) {}

  /// The token that follows a history, when nothing is scripted.
  static int32_t next_token(uint64_t hash) { return 260 + static_cast<int32_t>(hash % 200); }

  /// Overrides the best token: history length and last token to a token, or nothing.
  std::function<std::optional<int32_t>(int length, int32_t last)> script;
  /// Rows of sequences whose first token this is come out as NaN, from this length on.
  int32_t poisoned_first_token = -1;
  int poisoned_from = 0;
  /// The step with this number (from 0) fails.
  int failing_step = -1;
  /// All steps from this number on fail.
  int failing_from = 1 << 30;

  int steps() const { return step_; }
  int max_tokens_seen() const { return max_tokens_; }
  /// Of all steps together.
  int tokens() const { return tokens_; }

  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver* observer) override {
    const int step = step_++;
    if (step == failing_step || step >= failing_from)
      return fail(Code::device, "the device is gone");
    const auto tokens = static_cast<int>(input.token.shape[0]);
    max_tokens_ = std::max(max_tokens_, tokens);
    tokens_ += tokens;
    const auto sequences = static_cast<int>(input.context_len.shape[0]);
    const int32_t* offset = input.seq_offset.as<int32_t>();
    SWITCHYARD_CHECK(offset[0] == 0 && offset[sequences] == tokens, "bad offsets");
    for (int b = 0; b < sequences; ++b) store(input, b);
    for (int i = 0; i < input.logit_row.shape[0]; ++i) write_logits(input, i);
    if (observer != nullptr) route(input, *observer);
    return model::StepOutput{TensorView::of(logits_.data(), {input.logit_row.shape[0], kVocab})};
  }
  void between_steps() override {}

 private:
  int32_t& cell(const model::StepInput& input, int b, int position) {
    const int max_blocks = static_cast<int>(input.block_table.shape[1]);
    const int32_t block =
        input.block_table.as<int32_t>()[b * max_blocks + position / block_tokens_];
    return cache_[static_cast<size_t>(block * block_tokens_ + position % block_tokens_)];
  }

  void store(const model::StepInput& input, int b) {
    const int32_t* offset = input.seq_offset.as<int32_t>();
    int position = input.context_len.as<int32_t>()[b];
    for (int t = offset[b]; t < offset[b + 1]; ++t, ++position) {
      SWITCHYARD_CHECK(input.position.as<int32_t>()[t] == position, "position of token {}", t);
      cell(input, b, position) = input.token.as<int32_t>()[t];
    }
  }

  void write_logits(const model::StepInput& input, int row) {
    const int token = input.logit_row.as<int32_t>()[row];
    const int32_t* offset = input.seq_offset.as<int32_t>();
    int b = 0;
    while (offset[b + 1] <= token) ++b;
    SWITCHYARD_CHECK(token == offset[b + 1] - 1, "logits of a token in the middle");
    const int length = input.position.as<int32_t>()[token] + 1;
    uint64_t hash = 1469598103934665603u;
    for (int position = 0; position < length; ++position)
      hash = (hash ^ static_cast<uint64_t>(cell(input, b, position))) * 1099511628211u;
    hash ^= hash >> 29;
    float* logits = logits_.data() + row * kVocab;
    for (int v = 0; v < kVocab; ++v)
      logits[v] = static_cast<float>((hash >> (v % 50)) % 64) * 0.05f - (v < 260 ? 50.0f : 0.0f);
    int32_t best = next_token(hash);
    if (script) best = script(length, cell(input, b, length - 1)).value_or(best);
    logits[best] = 12.0f;
    if (cell(input, b, 0) == poisoned_first_token && length >= poisoned_from)
      logits[77] = std::nanf("");
  }

  void route(const model::StepInput& input, model::RoutingObserver& observer) {
    const int64_t tokens = input.token.shape[0];
    for (int layer = 0; layer < kMoeLayers; ++layer) {
      std::fill(load_.begin(), load_.end(), 0);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int k = 0; k < kTopK; ++k) {
          const int e = (input.token.as<int32_t>()[t] + layer + k) % kExperts;
          expert_[static_cast<size_t>(t * kTopK + k)] = e;
          ++load_[static_cast<size_t>(e)];
        }
      }
      Routing routing;
      routing.expert = TensorView::of(expert_.data(), {tokens, kTopK});
      routing.weight = TensorView::of(weight_.data(), {tokens, kTopK});
      routing.load = TensorView::of(load_.data(), {kExperts});
      routing.demand = routing.load;
      observer.on_routing(layer, routing);
    }
  }

  int block_tokens_;
  std::vector<int32_t> cache_;  // [blocks, P]
  std::vector<float> logits_;   // [N, V]
  std::vector<int32_t> expert_;
  std::vector<float> weight_;
  std::vector<int32_t> load_;
  int step_ = 0, max_tokens_ = 0, tokens_ = 0;
};

}  // namespace switchyard::engine
