// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace switchyard::model::cuda {
namespace {

namespace k = switchyard::cuda;
using k::StepLayout;

constexpr int kSampleWords = sizeof(k::SampleRow) / 4;

StepLayout layout_of(const StepShape& shape) {
  const auto room = [](int64_t count) { return static_cast<int32_t>((count + 3) / 4 * 4); };
  StepLayout at;
  at.rope_row = at.token + room(shape.tokens);
  at.slot = at.rope_row + room(shape.tokens);
  at.logit_row = at.slot + room(shape.tokens);
  at.seq_offset = at.logit_row + room(shape.logit_rows);
  at.context_len = at.seq_offset + room(shape.sequences + 1);
  at.sample = at.context_len + room(shape.sequences);
  at.end = at.sample + (shape.samples ? room(shape.logit_rows * kSampleWords) : 0);
  return at;
}

int num_sequences(const model::StepInput& input) {
  return static_cast<int>(input.context_len.shape[0]);
}

}  // namespace

Result<StepArrays> StepArrays::create(const LoadOptions& options, const ModelConfig& config,
                                      const Stream& stream, CudaStream& device) {
  StepArrays arrays;
  arrays.block_tokens_ = options.block_tokens;
  arrays.max_blocks_ = options.max_blocks_per_sequence;
  arrays.dump_block_ = options.num_kv_blocks;
  arrays.scaling_ = config.rope.scaling;
  arrays.pairs_ = config.rope.rotary_dim / 2;
  SWITCHYARD_ASSIGN(arrays.rope_, attention::RopeTable::create(config.rope));
  const StepShape largest{options.max_step_tokens, options.max_sequences, options.max_sequences,
                          true};
  arrays.slot_words_ = layout_of(largest).end;
  arrays.packed_.resize(static_cast<size_t>(arrays.slot_words_));
  const int64_t row_bytes = arrays.slot_words_ * 4, mail_bytes = row_bytes * k::kMailSlots;
  const int64_t table_bytes = int64_t{options.max_sequences} * arrays.max_blocks_ * 4;
  SWITCHYARD_ASSIGN(arrays.host_rows_, PinnedMemory::allocate(mail_bytes, "a step's rows"));
  SWITCHYARD_ASSIGN(arrays.rows_, CudaMemory::allocate(row_bytes, "a step's rows"));
  SWITCHYARD_ASSIGN(arrays.host_tables_, PinnedMemory::allocate(table_bytes, "block tables"));
  SWITCHYARD_ASSIGN(arrays.tables_, CudaMemory::allocate(table_bytes, "block tables"));
  arrays.rope_rows_ = arrays.dynamic() ? options.max_step_tokens
                                       : int64_t{arrays.max_blocks_} * options.block_tokens;
  const int64_t rope_bytes = 2 * arrays.rope_rows_ * arrays.pairs_ * 4;
  SWITCHYARD_ASSIGN(arrays.host_rotations_, PinnedMemory::allocate(rope_bytes, "rotations"));
  SWITCHYARD_ASSIGN(arrays.rotations_, CudaMemory::allocate(rope_bytes, "rotations"));
  if (arrays.dynamic()) return arrays;
  std::vector<int32_t> position(static_cast<size_t>(arrays.rope_rows_));
  std::iota(position.begin(), position.end(), 0);
  auto* cos = arrays.host_rotations_.as<float>();
  arrays.rope_.fill(position, position, cos, cos + arrays.rope_rows_ * arrays.pairs_, stream);
  device.copy_in(arrays.rotations_.data(), cos, rope_bytes);
  SWITCHYARD_TRY(device.synchronize("copy rotations"));
  return arrays;
}

void StepArrays::pack(const model::StepInput& input, std::span<const SampleRow> sample,
                      const StepShape& shape) {
  shape_ = shape;
  layout_ = layout_of(shape);
  const StepLayout& at = layout_;
  auto* const rows = packed_.data();
  const auto tokens = input.token.shape[0];
  const int sequences = num_sequences(input);
  const int32_t* position = input.position.as<int32_t>();
  const int32_t* seq_offset = input.seq_offset.as<int32_t>();
  const int32_t* table = input.block_table.as<int32_t>();
  const auto table_width = input.block_table.shape[1];
  rows[StepLayout::kLive] = static_cast<int32_t>(tokens);
  std::memcpy(rows + at.token, input.token.as<int32_t>(), static_cast<size_t>(tokens) * 4);
  std::memcpy(rows + at.logit_row, input.logit_row.as<int32_t>(),
              static_cast<size_t>(input.logit_row.shape[0]) * 4);
  std::memcpy(rows + at.seq_offset, seq_offset, static_cast<size_t>(sequences + 1) * 4);
  std::memcpy(rows + at.context_len, input.context_len.as<int32_t>(),
              static_cast<size_t>(sequences) * 4);
  if (shape.samples) std::memcpy(rows + at.sample, sample.data(), sample.size_bytes());
  for (int b = 0; b < sequences; ++b) {
    for (int32_t t = seq_offset[b]; t < seq_offset[b + 1]; ++t) {
      rows[at.rope_row + t] = dynamic() ? t : position[t];
      rows[at.slot + t] = table[b * table_width + position[t] / block_tokens_] * block_tokens_ +
                          position[t] % block_tokens_;
    }
  }
  pack_padding(sequences);
}

// Padded sequences, one token each, repeat the first one, so that they touch no expert that is not touched anyway.
void StepArrays::pack_padding(int first) {
  const StepLayout& at = layout_;
  auto* const rows = packed_.data();
  for (int b = first; b < shape_.sequences; ++b) {
    rows[at.token + b] = rows[at.token];
    rows[at.rope_row + b] = rows[at.rope_row];
    rows[at.slot + b] = static_cast<int32_t>(dump_block_) * block_tokens_;
    rows[at.logit_row + b] = b;
    rows[at.seq_offset + b + 1] = b + 1;
    rows[at.context_len + b] = rows[at.context_len];
    if (!shape_.samples) continue;
    std::memcpy(rows + at.sample + b * kSampleWords, rows + at.sample, sizeof(SampleRow));
  }
}

void StepArrays::post(uint32_t turn, const model::StepInput& input, const Stream& stream,
                      CudaStream& device) {
  post_again(turn);
  send_tables(input, device);
  if (dynamic()) send_rotations(input, stream, device);
}

void StepArrays::post_again(uint32_t turn) {
  std::memcpy(slot(turn), packed_.data(), static_cast<size_t>(layout_.end) * 4);
}

bool StepArrays::can_go_on() const noexcept {
  const int32_t* context = packed_.data() + layout_.context_len;
  return std::none_of(context, context + packed_[StepLayout::kLive],
                      [&](int32_t c) { return (c + 1) % block_tokens_ == 0; });
}

bool StepArrays::is_next(const model::StepInput& input, std::span<const SampleRow> sample,
                         const int32_t* pick) const {
  const int live = packed_[StepLayout::kLive];
  if (!input.decode_only || num_sequences(input) != live || input.logit_row.shape[0] != live) {
    return false;
  }
  const int32_t *token = input.token.as<int32_t>(), *row = input.logit_row.as<int32_t>();
  const int32_t* context = input.context_len.as<int32_t>();
  const int32_t* table = input.block_table.as<int32_t>();
  const auto table_width = input.block_table.shape[1];
  for (int b = 0; b < live; ++b) {
    const int32_t* sent = host_tables_.as<int32_t>() + int64_t{b} * sent_blocks_;
    if (token[b] != pick[b] || row[b] != b ||
        context[b] != packed_[static_cast<size_t>(layout_.context_len + b)] + 1 ||
        std::memcmp(table + b * table_width, sent, static_cast<size_t>(sent_blocks_) * 4) != 0) {
      return false;
    }
    if (!shape_.samples) continue;
    SampleRow expected;
    std::memcpy(static_cast<void*>(&expected), packed_.data() + layout_.sample + b * kSampleWords,
                sizeof(expected));
    ++expected.position;
    if (sample[static_cast<size_t>(b)] != expected) return false;
  }
  return true;
}

// Only the blocks that a sequence of this step can have are sent; and nothing when they are those of the last step, as between most
// decode steps: each copy keeps the launches waiting for some microseconds.
void StepArrays::send_tables(const model::StepInput& input, CudaStream& device) {
  const int sequences = num_sequences(input);
  const auto table_width = input.block_table.shape[1];
  const int32_t* table = input.block_table.as<int32_t>();
  const int32_t* seq_offset = input.seq_offset.as<int32_t>();
  const int32_t* context = input.context_len.as<int32_t>();
  int longest = 1;
  for (int b = 0; b < sequences; ++b) {
    longest = std::max(longest, context[b] + seq_offset[b + 1] - seq_offset[b]);
  }
  const int used = (longest + block_tokens_ - 1) / block_tokens_;
  auto* to = host_tables_.as<int32_t>();
  const auto row_bytes = static_cast<size_t>(used) * 4;
  bool same = sent_sequences_ == shape_.sequences && sent_blocks_ == used;
  for (int b = 0; b < shape_.sequences; ++b) {
    int32_t* const row = to + int64_t{b} * used;
    const int32_t* const from = table + (b < sequences ? b : 0) * table_width;
    same = same && std::memcmp(row, from, row_bytes) == 0;
    if (!same) std::memcpy(row, from, row_bytes);
  }
  if (same) return;
  sent_sequences_ = shape_.sequences;
  sent_blocks_ = used;
  device.copy_rows_in(tables_.data(), int64_t{max_blocks_} * 4, to, int64_t{used} * 4,
                      shape_.sequences);
}

void StepArrays::send_rotations(const model::StepInput& input, const Stream& stream,
                                CudaStream& device) {
  const auto tokens = input.token.shape[0];
  const int32_t* seq_offset = input.seq_offset.as<int32_t>();
  const int32_t* context = input.context_len.as<int32_t>();
  std::vector<int32_t> length(static_cast<size_t>(tokens));
  for (int b = 0; b < num_sequences(input); ++b) {
    const int32_t begin = seq_offset[b], end = seq_offset[b + 1];
    std::fill(length.begin() + begin, length.begin() + end, context[b] + end - begin);
  }
  auto* cos = host_rotations_.as<float>();
  float* sin = cos + rope_rows_ * pairs_;
  rope_.fill({input.position.as<int32_t>(), static_cast<size_t>(tokens)}, length, cos, sin, stream);
  auto* to = rotations_.as<float>();
  device.copy_in(to, cos, tokens * pairs_ * 4);
  device.copy_in(to + rope_rows_ * pairs_, sin, tokens * pairs_ * 4);
}

StepPointers StepArrays::pointers(const StepShape& shape) const noexcept {
  const StepLayout at = layout_of(shape);
  const auto* rows = rows_.as<int32_t>();
  const auto* cos = rotations_.as<float>();
  return {.token = rows + at.token,
          .rope_row = rows + at.rope_row,
          .slot = rows + at.slot,
          .logit_row = rows + at.logit_row,
          .seq_offset = rows + at.seq_offset,
          .context_len = rows + at.context_len,
          .block_table = tables_.as<int32_t>(),
          .cos = cos,
          .sin = cos + rope_rows_ * pairs_,
          .max_blocks = max_blocks_,
          .live = rows + StepLayout::kLive,
          .sample = reinterpret_cast<const SampleRow*>(rows + at.sample)};
}

k::BeginStep StepArrays::begin(const StepShape& shape) const noexcept {
  return {.slots = host_rows_.as<int32_t>(),
          .slot_words = slot_words_,
          .arrays = rows_.as<int32_t>(),
          .layout = layout_of(shape),
          .tokens = shape.tokens};
}

}  // namespace switchyard::model::cuda
