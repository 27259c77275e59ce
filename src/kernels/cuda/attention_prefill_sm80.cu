// SPDX-License-Identifier: Apache-2.0
// Prefill attention on sm_80 and newer: blocks of 64 rows (token, query head) of one kv head against tiles of 64
// keys, so that a group's heads share each tile.
//
//   4 warps of 16 rows; Q stays in registers; K and V tiles come by cp.async, two stages, 16-byte chunks swizzled
//   S [16, 64] = Q K^T by mma m16n8k16; online softmax in base 2; O [16, Z] += P V
// Keys are visited in ascending tiles at fixed positions, so a token's bits depend on its own keys alone.
// Floor: 4 T context H Z / 2 operations when causal. Source: Dao 2023, arXiv 2307.08691 (FlashAttention-2).
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda/attention_items.cuh"

namespace switchyard::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kRows = 64, kKeys = 64;

// The rows of a block: tile `tile` of a sequence's (token, head) pairs.
struct Work {
  int sequence = -1, tile = 0;
};

__device__ Work find_work(const Attend& a, int share) {
  int left = blockIdx.x;
  for (int b = 0; b < a.sequences; ++b) {
    const int tokens = a.seq_offset[b + 1] - a.seq_offset[b];
    if (tokens < 2) continue;  // attend_decode takes those of one
    const int tiles = (tokens * share + kRows - 1) / kRows;
    if (left < tiles) return {b, tiles - 1 - left};  // longest first
    left -= tiles;
  }
  return {};
}

// Element (key, z) of a tile, z a multiple of 8: chunks are swizzled so that 8 rows of one column meet 8 banks groups.
template <int kZ>
__device__ __forceinline__ int tile_at(int key, int z) {
  return key * kZ + ((z / 8) ^ (key % 8)) * 8;
}

template <int kZ>
struct Shared {
  bf16 k[2][kKeys * kZ], v[2][kKeys * kZ];
};

// Queues the copies of the tile that begins at `first`; keys outside [begin, end) become zeros, and no table entry outside is
// followed: it may stand for a block that is gone.
template <int kZ>
__device__ void copy_tile(const Attend& a, const int32_t* table, int kv_head, int first, int begin,
                          int end, bf16* k, bf16* v) {
  constexpr int kChunks = kZ / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kKeys * kChunks; i += kThreads) {
    const int key = i / kChunks, z = i % kChunks * 8,
              position = max(begin, min(first + key, end - 1));
    const int64_t block = table[position / a.block_tokens];
    const int64_t at =
        ((block * a.kv_heads + kv_head) * a.block_tokens + position % a.block_tokens) * kZ + z;
    const int bytes = first + key == position ? 16 : 0;
    copy_16(shared_address(k + tile_at<kZ>(key, z)), static_cast<const bf16*>(a.k_cache) + at,
            bytes);
    copy_16(shared_address(v + tile_at<kZ>(key, z)), static_cast<const bf16*>(a.v_cache) + at,
            bytes);
  }
  copies_commit();
}

// What a lane knows of its two rows (lane / 4 and lane / 4 + 8 of the warp's 16).
struct Row {
  int64_t offset = -1;  // element of q and out; -1: no such row
  int position = 0;
};

template <int kZ>
__device__ Row find_row(const Attend& a, const Work& work, int kv_head, int index) {
  const int share = a.heads / a.kv_heads, first = a.seq_offset[work.sequence];
  const int token = index / share;
  if (token >= a.seq_offset[work.sequence + 1] - first) return {-1, -1};
  const int64_t head = kv_head * share + index % share;
  return {(int64_t{first + token} * a.heads + head) * kZ, a.context_len[work.sequence] + token};
}

template <int kZ>
__device__ void load_queries(const Attend& a, const Row (&row)[2], uint32_t (&q)[kZ / 16][4]) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kZ / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t at = row[i % 2].offset;
      q[j][i] = at < 0 ? 0u
                       : *reinterpret_cast<const uint32_t*>(static_cast<const bf16*>(a.q) + at +
                                                            j * 16 + quad * 2 + i / 2 * 8);
    }
  }
}

template <int kZ>
__device__ void score(const uint32_t (&q)[kZ / 16][4], const bf16* k, float (&s)[8][4]) {
  const int lane = threadIdx.x % kWarp;
  // Matrices of one load: keys 0-7 and 8-15 of a pair of n tiles, each for both halves of 16 z.
  const int key = lane % 8 + lane / 16 * 8, half = lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < kZ / 16; ++j) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      load_matrices(b, shared_address(k + tile_at<kZ>(n * 8 + key, j * 16 + half)));
      mma_bf16(s[n], q[j][0], q[j][1], q[j][2], q[j][3], b[0], b[1]);
      mma_bf16(s[n + 1], q[j][0], q[j][1], q[j][2], q[j][3], b[2], b[3]);
    }
  }
}

template <int kZ>
__device__ void accumulate(const float (&p)[8][4], const bf16* v, float (&o)[kZ / 8][4]) {
  const int lane = threadIdx.x % kWarp;
  const int key = lane % 16, half = lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
    const uint32_t a0 = pack_bf16(p[2 * j][0], p[2 * j][1]);
    const uint32_t a1 = pack_bf16(p[2 * j][2], p[2 * j][3]);
    const uint32_t a2 = pack_bf16(p[2 * j + 1][0], p[2 * j + 1][1]);
    const uint32_t a3 = pack_bf16(p[2 * j + 1][2], p[2 * j + 1][3]);
#pragma unroll
    for (int n = 0; n < kZ / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, shared_address(v + tile_at<kZ>(j * 16 + key, n * 8 + half)));
      mma_bf16(o[n], a0, a1, a2, a3, b[0], b[1]);
      mma_bf16(o[n + 1], a0, a1, a2, a3, b[2], b[3]);
    }
  }
}

// Hides keys that row r may not see, turns scores into weights, scales what is there already.
template <int kZ>
__device__ void soften(const Attend& a, int r, const Row& row, int first, float (&s)[8][4],
                       float& highest, float& total, float (&o)[kZ / 8][4]) {
  const int quad = threadIdx.x % 4;
  const int low = a.window > 0 ? row.position - a.window + 1 : 0;
  const float scale = a.scale * kLog2e;
  float most = highest;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = first + n * 8 + quad * 2 + i;
      float& value = s[n][r * 2 + i];
      value = key <= row.position && key >= low ? value * scale : -INFINITY;
      most = fmaxf(most, value);
    }
  }
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
  const float base = most == -INFINITY ? 0.0f : most;
  const float shrink = exp2f(highest - base);
  highest = most;
  total *= shrink;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& value = s[n][r * 2 + i];
      value = exp2f(value - base);
      total += value;
    }
  }
#pragma unroll
  for (int n = 0; n < kZ / 8; ++n) {
    o[n][r * 2] *= shrink;
    o[n][r * 2 + 1] *= shrink;
  }
}

template <int kZ>
__device__ void write_out(const Attend& a, int r, const Row& row, float total,
                          const float (&o)[kZ / 8][4]) {
  total += __shfl_xor_sync(kAllLanes, total, 1);
  total += __shfl_xor_sync(kAllLanes, total, 2);
  if (row.offset < 0) return;
  const float inverse = 1.0f / total;
  bf16* to = static_cast<bf16*>(a.out) + row.offset + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < kZ / 8; ++n) {
    *reinterpret_cast<uint32_t*>(to + n * 8) =
        pack_bf16(o[n][r * 2] * inverse, o[n][r * 2 + 1] * inverse);
  }
}

template <int kZ>
__global__ void __launch_bounds__(kThreads, 2) prefill_kernel(Attend a) {
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<kZ>*>(raw);
  const int share = a.heads / a.kv_heads, kv_head = blockIdx.y;
  const Work work = find_work(a, share);
  if (work.sequence < 0) return;
  const int warp_row = work.tile * kRows + threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4;
  const Row row[2] = {find_row<kZ>(a, work, kv_head, warp_row),
                      find_row<kZ>(a, work, kv_head, warp_row + 8)};
  const int context = a.context_len[work.sequence];
  const int tokens = a.seq_offset[work.sequence + 1] - a.seq_offset[work.sequence];
  const int first_token = work.tile * kRows / share;
  const int last_token = min(tokens - 1, (work.tile * kRows + kRows - 1) / share);
  const int end = context + last_token + 1;
  const int seen = a.window > 0 ? max(0, context + first_token - a.window + 1) : 0;
  const int32_t* table = a.block_table + int64_t{work.sequence} * a.max_blocks;
  uint32_t q[kZ / 16][4];
  load_queries<kZ>(a, row, q);
  float o[kZ / 8][4] = {}, highest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  int stage = 0, at = seen / kKeys * kKeys;
  copy_tile<kZ>(a, table, kv_head, at, seen, end, shared.k[0], shared.v[0]);
  for (; at < end; at += kKeys, stage ^= 1) {
    if (at + kKeys < end) {
      copy_tile<kZ>(a, table, kv_head, at + kKeys, seen, end, shared.k[stage ^ 1],
                    shared.v[stage ^ 1]);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    float s[8][4] = {};
    score<kZ>(q, shared.k[stage], s);
    soften<kZ>(a, 0, row[0], at, s, highest[0], total[0], o);
    soften<kZ>(a, 1, row[1], at, s, highest[1], total[1], o);
    accumulate<kZ>(s, shared.v[stage], o);
    __syncthreads();  // the stage may be filled again
  }
  write_out<kZ>(a, 0, row[0], total[0], o);
  write_out<kZ>(a, 1, row[1], total[1], o);
}

template <int kZ>
void launch(const Attend& args, StreamHandle stream) {
  constexpr int kBytes = sizeof(Shared<kZ>);
  // Where this fails, so does every launch, and the step tells it.
  static const cudaError_t raised =
      cudaFuncSetAttribute(prefill_kernel<kZ>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  (void)raised;
  const int64_t share = args.heads / args.kv_heads;
  // Each sequence may leave one tile partly filled.
  const int64_t tiles = args.tokens * share / kRows + args.sequences;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(args.kv_heads));
  prefill_kernel<kZ><<<grid, kThreads, kBytes, stream>>>(args);
}

}  // namespace

void attend_prefill_sm80(const Attend& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (args.head_dim == 64) return launch<64>(args, stream);
  launch<128>(args, stream);
}

}  // namespace switchyard::cuda
