// SPDX-License-Identifier: Apache-2.0
// Which attention kernel runs: Hopper's own where they can, else those of sm_80.
#include "kernels/cuda/attention_decode_items.cuh"
#include "kernels/cuda/attention_entries.h"

namespace switchyard::cuda {

bool attend_fast_accepts(const Attend& args) noexcept {
  const bool width = args.head_dim == 64 || args.head_dim == 128;
  return args.dtype == DType::bf16 && width && args.block_tokens % kCacheTile == 0;
}

int64_t attend_counters(const Attend& shape) noexcept { return counter_bytes(shape); }

int64_t attend_workspace(const Attend& shape, int64_t positions, int sequences) noexcept {
  // Each sequence may begin and end inside a unit and leave a span partly filled.
  const int64_t spans = positions / (kSpanUnits * kUnit) + int64_t{2} * sequences;
  return counter_bytes(shape) +
         spans * shape.kv_heads * head_tiles(shape) * partial_size(shape) * 4;
}

void attend_decode(const Attend& args, StreamHandle stream) noexcept {
  if (args.sequences == 1 && args.tokens > 1) return;  // none of one token
  if (!attend_decode_sm90a(args, stream)) attend_decode_sm80(args, stream);
}

void attend_prefill(const Attend& args, StreamHandle stream) noexcept {
  if (!attend_prefill_sm90a(args, stream)) attend_prefill_sm80(args, stream);
}

}  // namespace switchyard::cuda
