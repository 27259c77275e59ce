// SPDX-License-Identifier: Apache-2.0
// Launches of everything in a CUDA step but the experts: rows in and out of the residual stream, dense products, attention.
// All are queued on `stream`, allocate nothing and can be captured in a graph. Their meaning is kernels/ref.
//
// The residual stream x and the products stay f32; what a product reads ("rows") is in the precision of the run, f32 or
// bf16, as are the caches. Device code includes this header, so it stays free of the host's heavy headers.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

struct CUstream_st;

namespace switchyard::cuda {

using StreamHandle = CUstream_st*;

/// y[t] = rms_norm(x[row[t]]) * weight, in either or both precisions.
struct NormRows {
  const float* x = nullptr;       ///< [*, D]
  const int32_t* row = nullptr;   ///< [T], or null: row t is t
  const float* weight = nullptr;  ///< [D]
  int64_t tokens = 0, width = 0;
  float eps = 1e-6f;
  float* y_f32 = nullptr;  ///< [T, D], or null
  void* y_bf16 = nullptr;  ///< [T, D], or null
  /// [T, 2 D] bf16, or null: high | low, whose sum is y to within 2^-17. Only norm_rows stores it.
  void* y_split = nullptr;
};
void norm_rows(const NormRows& args, StreamHandle stream) noexcept;

/// The norm before the experts and the gate's logits of it in one launch: logits[t, e] = gate[e] . rms_norm(x[t]).
/// For few tokens: every block of 4 experts forms the norm anew.
struct NormRoute {
  NormRows norm;                ///< row is null
  const float* gate = nullptr;  ///< [E, D] f32
  int num_experts = 0;
  float* logits = nullptr;  ///< [T, E]
};
/// False for many tokens, where two launches are faster, and for widths that it cannot do.
bool norm_route_accepts(const NormRoute& args) noexcept;
void norm_route(const NormRoute& args, StreamHandle stream) noexcept;

/// The same for up to some hundred tokens, on tensor cores with both factors in two parts of bf16: nearly as exact as f32.
bool norm_gate_accepts(const NormRoute& args) noexcept;
void norm_gate(const NormRoute& args, StreamHandle stream) noexcept;

/// Gate rows in two parts of bf16, for products of NormRows::y_split.
struct SplitGate {
  const float* gate = nullptr;  ///< [E, D]
  int64_t num_experts = 0, width = 0;
  void* high = nullptr;        ///< [E, 2 D]: high | high
  void* low = nullptr;         ///< [E, D]
  int32_t* any_low = nullptr;  ///< [1] set to 1 if any low part is not 0, else left alone
};
void split_gate(const SplitGate& args, StreamHandle stream) noexcept;

enum class QkNormKind : uint8_t { none, per_head, full_width };

/// PrepareQkv on the device (ops/norm_rope_act.h); the K cache is [blocks, G, P, Z], not transposed.
struct PrepareHeads {
  int heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  QkNormKind norm = QkNormKind::none;
  float eps = 1e-6f, clip = 0;
  int block_tokens = 16;
  DType dtype = DType::bf16;          ///< of q and the caches
  const float* qkv = nullptr;         ///< [T, (H + 2 G) Z]
  const void* qkv_bf16 = nullptr;     ///< the same in place of it; only with a dtype of bf16
  const float* q_norm = nullptr;      ///< [Z] or [H Z]
  const float* k_norm = nullptr;      ///< [Z] or [G Z]
  const float* cos = nullptr;         ///< [*, r/2]
  const float* sin = nullptr;         ///< [*, r/2]
  const int32_t* rope_row = nullptr;  ///< [T]: the token's row of cos and sin
  const int32_t* slot = nullptr;      ///< [T]: block * P + offset
  void* q = nullptr;                  ///< [T, H, Z] in dtype
  void* k_cache = nullptr;
  void* v_cache = nullptr;
  int64_t tokens = 0;
  uint64_t* words =
      nullptr;  ///< only for dense_tile_heads: [FullHeadWords::kCount], zero when created, of one call at a time; or null
};
void prepare_heads(const PrepareHeads& args, StreamHandle stream) noexcept;

/// h[t] = silu(gate[t]) * up[t] * (weight[t] or 1), from rows [gate | up]. Overflow-safe.
struct Swiglu {
  const float* gate_up = nullptr;  ///< [T, 2 F]
  const float* weight = nullptr;   ///< [T] logits of a sigmoid, or null
  int64_t tokens = 0, ffn_width = 0;
  DType dtype = DType::bf16;
  void* h = nullptr;  ///< [T, F] in dtype
};
void swiglu(const Swiglu& args, StreamHandle stream) noexcept;

/// y = alpha * x W^T + bias, or y += that. x and W share a precision; sums are f32.
struct Dense {
  const void* x = nullptr;       ///< [T, k] in dtype
  const void* weight = nullptr;  ///< [n, k] in dtype
  const float* bias = nullptr;   ///< [n], or null
  DType dtype = DType::bf16;
  int64_t tokens = 0, n = 0, k = 0;
  float alpha = 1;
  bool accumulate = false;
  float* y = nullptr;      ///< [T, n]
  void* y_bf16 = nullptr;  ///< the same in place of it, rounded: only where one asks for that
  NormRows norm{};         ///< only for dense_few: with norm.x, x is rms_norm of it, in bf16
  // Only for dense_few and tiles (dense_tile.h):
  const void* next = nullptr;  ///< what a later launch reads and nobody writes: asked for early
  int64_t next_bytes = 0;
};
/// Any shape, by plain CUDA cores: one warp for one output.
void dense_plain(const Dense& args, StreamHandle stream) noexcept;
/// bf16 for few tokens: weights stream from memory straight into the tensor cores' operands. A token's bits do not depend
/// on the others.
bool dense_skinny_accepts(const Dense& args) noexcept;
void dense_skinny(const Dense& args, StreamHandle stream) noexcept;
/// bf16 for at most 8 tokens, chained (chain.cuh), with a norm in front where wanted. Without one its bits are dense_skinny's.
bool dense_few_accepts(const Dense& args) noexcept;
void dense_few(const Dense& args, StreamHandle stream) noexcept;

/// Causal attention over the paged cache; see ops/attention.h. K and V are [blocks, G, P, Z].
struct Attend {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int block_tokens = 16;
  DType dtype = DType::bf16;  ///< of q, the caches and out
  int window = 0;
  float scale = 0;
  const void* q = nullptr;  ///< [T, H, Z]
  const void* k_cache = nullptr;
  const void* v_cache = nullptr;
  const int32_t* seq_offset = nullptr;   ///< [B + 1]
  const int32_t* context_len = nullptr;  ///< [B]
  const int32_t* block_table = nullptr;  ///< [B, max_blocks]
  int max_blocks = 0, sequences = 0;
  int64_t tokens = 0;
  void* out = nullptr;  ///< [T, H, Z]
  void* workspace = nullptr;
};
inline constexpr int kMaxPlainHeadDim = 512;  ///< widest head of attend_plain
/// Any shape up to that, any precision: one warp for one query head of one token.
void attend_plain(const Attend& args, StreamHandle stream) noexcept;
/// bf16, Z of 64 or 128, P a multiple of 16, fewer than 2^31 rows (block, kv head, position). Sequences of one token go to
/// attend_decode, which cuts their keys into spans for the whole machine; the others to attend_prefill. Neither touches the
/// other's tokens. Each takes the fastest kernel of attention_entries.h that the device has.
inline constexpr int kMaxDecodeSequences = 1024;  ///< most B of both
bool attend_fast_accepts(const Attend& args) noexcept;
void attend_decode(const Attend& args, StreamHandle stream) noexcept;
void attend_prefill(const Attend& args, StreamHandle stream) noexcept;
/// Bytes of their workspace when the cache holds `positions` and a step `sequences`; zero the first attend_counters once.
int64_t attend_workspace(const Attend& shape, int64_t positions, int sequences) noexcept;
int64_t attend_counters(const Attend& shape) noexcept;

/// Experts for exact comparison: any shape, plain sums. The picks are given; -1: none.
struct PlainMoe {
  const void* x = nullptr;        ///< [T, D] in dtype
  const void* gate_up = nullptr;  ///< [E, 2 F, D] in dtype: gate rows, then up rows
  const void* down = nullptr;     ///< [E, D, F]
  DType dtype = DType::f32;
  int top_k = 0;
  bool weight_on_input = false;  ///< the weight scales x and not the result
  int64_t tokens = 0, width = 0, ffn_width = 0;
  float scale = 1;                  ///< of what is added to y
  const int32_t* expert = nullptr;  ///< [T, K]
  const float* weight = nullptr;    ///< [T, K]
  float* h = nullptr;               ///< [T, K, F] scratch
  float* y = nullptr;               ///< [T, D]: the residual stream
};
void moe_plain(const PlainMoe& args, StreamHandle stream) noexcept;

/// Weights for measurements: uniform in [-bound, bound], Philox of (seed, position), the same on every machine.
void fill_random(void* to, DType dtype, int64_t count, float bound, uint64_t seed,
                 StreamHandle stream) noexcept;
/// Adds scale * row, [width] f32, to each of `rows` rows of [rows, width].
void add_to_rows(void* to, DType dtype, int64_t rows, int64_t width, const float* row, float scale,
                 StreamHandle stream) noexcept;
/// Values that bf16 can hold, in place.
void round_to_bf16(float* values, int64_t count, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
