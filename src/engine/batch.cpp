// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.h"

#include <algorithm>

#include "base/check.h"

namespace switchyard::engine {
namespace {

TensorView view(std::vector<int32_t>& values) {
  return TensorView::of(values.data(), {static_cast<int64_t>(values.size())});
}

}  // namespace

Batch::Batch(const schedule::Limits& limits, int max_blocks) : max_blocks_(max_blocks) {
  const auto tokens = static_cast<size_t>(limits.max_step_tokens);
  const auto sequences = static_cast<size_t>(limits.max_sequences);
  token_.reserve(tokens);
  position_.reserve(tokens);
  seq_offset_.reserve(sequences + 1);
  context_len_.reserve(sequences);
  logit_row_.reserve(sequences);
  block_table_.resize(sequences * static_cast<size_t>(max_blocks));
}

model::StepInput Batch::build(const schedule::Decision& decision,
                              std::span<const Live* const> live) {
  SWITCHYARD_CHECK(live.size() == decision.runs.size(), "{} requests for {} runs", live.size(),
                   decision.runs.size());
  for (auto* values : {&token_, &position_, &seq_offset_, &context_len_, &logit_row_})
    values->clear();
  seq_offset_.push_back(0);
  for (size_t b = 0; b < live.size(); ++b) append(decision.runs[b], *live[b]);
  model::StepInput input;
  input.token = view(token_);
  input.position = view(position_);
  input.seq_offset = view(seq_offset_);
  input.context_len = view(context_len_);
  input.block_table =
      TensorView::of(block_table_.data(), {static_cast<int64_t>(live.size()), max_blocks_});
  input.logit_row = view(logit_row_);
  input.decode_only = decision.decode_only;
  return input;
}

void Batch::append(const schedule::Decision::Run& run, const Live& live) {
  const std::vector<int32_t>& blocks = live.sequence->blocks;
  const int end = run.first_token + run.num_tokens;
  SWITCHYARD_CHECK(
      end <= static_cast<int>(live.tokens.size()) && static_cast<int>(blocks.size()) <= max_blocks_,
      "request {}: tokens to {} of {}, {} blocks of {}", run.id, end, live.tokens.size(),
      blocks.size(), max_blocks_);
  const auto row = context_len_.size() * static_cast<size_t>(max_blocks_);
  std::copy(blocks.begin(), blocks.end(), block_table_.begin() + static_cast<std::ptrdiff_t>(row));
  context_len_.push_back(run.first_token);
  for (int position = run.first_token; position < end; ++position) {
    token_.push_back(live.tokens[static_cast<size_t>(position)]);
    position_.push_back(position);
  }
  seq_offset_.push_back(static_cast<int32_t>(token_.size()));
  if (run.samples) logit_row_.push_back(static_cast<int32_t>(token_.size()) - 1);
}

}  // namespace switchyard::engine
