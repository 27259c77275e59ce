// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/buffers.h"

#include <algorithm>

#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/dense_tile.h"

namespace switchyard::model::cuda {
namespace {

// The widest layer of each kind.
struct Widths {
  int64_t qkv = 0, q = 0, ffn = 0, experts = 0, top_k = 0;
};
Widths widths_of(const ModelConfig& config) {
  Widths most;
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (const BlockSpec& block : config.blocks) {
    const attention::GqaSpec& a = block.attention;
    raise(most.q, int64_t{a.heads} * a.head_dim);
    raise(most.qkv, int64_t{a.heads + 2 * a.kv_heads} * a.head_dim);
    raise(most.ffn, block.router ? block.shared.width : block.ffn_width);
    if (!block.router) continue;
    raise(most.experts, block.router->num_experts);
    raise(most.top_k, Experts::columns_of(*block.router));
  }
  return most;
}

class Room {
 public:
  explicit Room(std::byte* base) : base_(base) {}
  template <class T>
  void take(T*& to, int64_t count, int64_t each = sizeof(T)) {
    to = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * each + 255) / 256 * 256;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

int64_t place(const ModelConfig& config, const LoadOptions& options, std::byte* base, Buffers& b) {
  const Widths most = widths_of(config);
  const int64_t tokens = switchyard::cuda::padded_tokens(options.max_step_tokens);
  const int64_t rows = switchyard::cuda::padded_tokens(options.max_sequences);
  const int64_t each = dtype_bytes(options.dtype), width = config.width;
  b.logit_rows = rows;
  b.picks = int64_t{config.num_moe_blocks()} * tokens * most.top_k;
  Room room(base);
  room.take(b.x, tokens * width);
  room.take(b.rows, tokens * width, each);
  room.take(b.next_rows, tokens * width, each);
  room.take(b.normed, tokens * width);
  room.take(b.split, options.dtype == DType::bf16 ? tokens * 2 * width : 0, 2);
  room.take(b.qkv, tokens * most.qkv);
  room.take(b.q, tokens * most.q, each);
  room.take(b.mixed, tokens * most.q, each);
  room.take(b.wide, tokens * 2 * most.ffn);
  room.take(b.hidden, tokens * most.ffn, each);
  room.take(b.shared_weight, tokens);
  room.take(b.gate, tokens * most.experts);
  room.take(b.results, rows + 2 * b.picks);
  room.take(b.head_rows, rows * width, each);
  room.take(b.logits, rows * config.vocab);
  return room.used();
}

}  // namespace

Result<Buffers> Buffers::create(const ModelConfig& config, const LoadOptions& options,
                                int64_t attention_bytes) {
  Buffers buffers;
  const int64_t bytes = place(config, options, nullptr, buffers);
  SWITCHYARD_ASSIGN(buffers.memory, CudaMemory::allocate(bytes, "a step's activations"));
  place(config, options, buffers.memory.data(), buffers);
  SWITCHYARD_ASSIGN(buffers.attention_workspace,
                    CudaMemory::allocate(attention_bytes, "attention's partial sums"));
  SWITCHYARD_ASSIGN(buffers.head_words,
                    CudaMemory::allocate(switchyard::cuda::FullHeadWords::kCount * 8,
                                         "what tiles of heads hand each other"));
  return buffers;
}

Result<HostResults> HostResults::create(const ModelConfig& config, const LoadOptions& options,
                                        const Buffers& buffers) {
  HostResults results;
  const int64_t logits = int64_t{options.max_sequences} * config.vocab * 4;
  SWITCHYARD_ASSIGN(results.logits, PinnedMemory::allocate(logits, "logits"));
  SWITCHYARD_ASSIGN(results.results,
                    PinnedMemory::allocate((buffers.logit_rows + 2 * buffers.picks) * 4, "picks"));
  return results;
}

}  // namespace switchyard::model::cuda
