// SPDX-License-Identifier: Apache-2.0
// What the consumers of the Hopper MoE kernel do with an item's sums.
//
//   pass 1  packed rows alternate 8 gate, 8 up: elements 4j, 4j + 1 of a thread are gate and 4j + 2, 4j + 3 up of the
//           same hidden column for two tokens, so act(gate) * up needs no exchange
//   both    results are transposed on their way to shared memory (stmatrix), token by token, 64 columns = 128 bytes
#pragma once
#include "kernels/cuda/moe_ffn_sm90a_multiply.cuh"
#include "kernels/cuda/moe_ffn_sm90a_send.cuh"

namespace switchyard::cuda::sm90a {

/// act(gate) * up; act is silu, or any curve. Each value by itself: sharing a reciprocal between two tokens would save
/// special-function work, but then a token's last bit depends on its neighbour, which may be padding.
template <bool kSilu>
__device__ __forceinline__ float gated(const GluCurve& curve, float gate, float up) {
  float odds = gate;
  if constexpr (!kSilu) {
    const float q = fminf(gate * gate, 36.0f);
    odds = gate * fmaf(q, fmaf(q, curve.c, curve.b), curve.a);
  }
  return gate * up * reciprocal(1.0f + __expf(-odds));
}

/// Byte of a token's 16-byte chunk in a staging panel: the swizzle that a stage of tokens has.
__device__ __forceinline__ uint32_t staged_byte(int token, int chunk) {
  return token * kStepBytes + ((chunk ^ (token & 7)) * 16);
}

constexpr int kGroupBytes = 8 * kStepBytes;  ///< of a staging panel: 8 tokens

/// All threads of this consumer.
__device__ __forceinline__ void group_barrier(const Consumer& me) {
  if (me.group == 0) {
    fixed_barrier<1, 128>();
  } else {
    fixed_barrier<2, 128>();
  }
}

/// The staging panel that this consumer fills, alone or with the other one.
template <class TileT>
__device__ __forceinline__ int panel_of(int group) {
  return TileT::kPanels == 1 ? 0 : group;
}

/// Hands on to the sender what this warp's group has staged or written.
template <class TileT>
__device__ __forceinline__ void hand_over(Shared<TileT>& shared, const Consumer& me) {
  __syncwarp();
  if (me.lane == 0) barrier_arrive(shared_address(&shared.staged[panel_of<TileT>(me.group)]));
}

/// Waits until the sender has read what was handed over before. `parity` counts hand-overs.
template <class TileT>
__device__ __forceinline__ void wait_for_panel(Shared<TileT>& shared, int panel, uint32_t parity) {
  barrier_wait(shared_address(&shared.drained[panel]), parity ^ 1);
}

/// The hidden columns of one 64-row tile into the panel, `kCount` tokens from `begin` on, 32 at a time. `base` is that of token `begin`.
template <bool kSilu, int kCount, int kSums>
__device__ __forceinline__ void stage_activated(const float (&acc)[kSums], int begin,
                                                const GluCurve& curve, int columns, uint32_t base) {
#pragma unroll
  for (int first = begin / 2; first < begin / 2 + kCount / 2; first += 16) {
    if (2 * first >= columns) break;
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* a = &acc[first + 4 * j];
      pair[j] = pack_bf16(gated<kSilu>(curve, a[0], a[2]), gated<kSilu>(curve, a[1], a[3]));
    }
    store_transposed(base + (first - begin / 2) / 4 * kGroupBytes, pair[0], pair[1], pair[2],
                     pair[3]);
  }
}

/// act(gate) * up of 64 * kM64 packed rows into the panel, and out, as many tokens at a time as it holds.
template <class TileT>
__device__ __forceinline__ void stage_hidden(const Sums<TileT>& acc, Shared<TileT>& shared,
                                             const MoeFfnParams& p, const Item& item,
                                             uint32_t& handed, const Consumer& me) {
  constexpr int kCount = TileT::kStaged;
  const int panel = panel_of<TileT>(me.group);
  const uint32_t panel_base = shared_address(shared.staging) + panel * TileT::kStagedBytes;
#pragma unroll
  for (int begin = 0; begin < TileT::kTokens; begin += kCount) {
    if (begin >= item.columns) break;
    wait_for_panel(shared, panel, handed);
#pragma unroll
    for (int i = 0; i < TileT::kM64; ++i) {
      const int chunk = (TileT::kPanels == 1 ? me.group : i) * 4 + me.warp;
      const uint32_t base = panel_base + staged_byte(me.lane, chunk);
      if (p.activation == GluActivation::swiglu) {
        stage_activated<true, kCount>(acc[i], begin, p.curve, item.columns, base);
      } else {
        stage_activated<false, kCount>(acc[i], begin, p.curve, item.columns, base);
      }
    }
    fence_async_shared();
    hand_over(shared, me);
    handed ^= 1;
  }
}

/// The item's part of `rows`, 64 columns and up to kChunk tokens at a time through this group's half of the staging.
template <class TileT>
__device__ __forceinline__ void write_rows(const Sums<TileT>& acc, Shared<TileT>& shared,
                                           const MoeFfnParams& p, const Item& item,
                                           const Consumer& me) {
  constexpr int kChunk = TileT::kStaged * TileT::kPanels / kNumConsumers;
  const uint8_t* staging = shared.staging + me.group * kChunk * kStepBytes;
  const int chunk = 2 * me.warp + me.lane / 8 % 2;  // of the matrix whose row this lane addresses
  const uint32_t base =
      shared_address(staging) + staged_byte(me.lane / 16 * 8 + me.lane % 8, chunk);
  const int row = me.thread / 8,
            part = me.thread % 8;  // this thread writes 16 bytes of each 16th token
  const uint8_t* from = staging + staged_byte(row, part);
  const int64_t first = shared.plan.row_begin[item.expert] + item.row + row;
#pragma unroll
  for (int i = 0; i < TileT::kM64; ++i) {
    const int column = item.block * TileT::kRows + (me.group * TileT::kM64 + i) * 64 + part * 8;
    __nv_bfloat16* to = p.rows + first * p.width + column;
#pragma unroll
    for (int begin = 0; begin < TileT::kTokens; begin += kChunk) {
      if (begin >= item.columns) break;
#pragma unroll
      for (int j = begin / 8; j < (begin + kChunk) / 8; j += 2) {
        if (8 * j >= item.columns) break;
        const float* a = &acc[i][4 * j];
        store_transposed(base + (j - begin / 8) * kGroupBytes, pack_bf16(a[0], a[1]),
                         pack_bf16(a[2], a[3]), pack_bf16(a[4], a[5]), pack_bf16(a[6], a[7]));
      }
      group_barrier(me);
#pragma unroll
      for (int token = begin; token < begin + kChunk; token += 16) {
        if (token + row < item.valid) {
          *reinterpret_cast<uint4*>(to) =
              *reinterpret_cast<const uint4*>(from + (token - begin) * kStepBytes);
        }
        to += 16 * p.width;
      }
      group_barrier(me);
    }
  }
}

/// Adds the biases of the rows. (As first values of the sums they would keep the compiler from overlapping products.)
template <class TileT>
__device__ __forceinline__ void add_bias(Sums<TileT>& acc, const MoeFfnParams& p, const Item& item,
                                         const Consumer& me) {
#pragma unroll
  for (int half = 0; half < 2 * TileT::kM64; ++half) {  // of the 16 rows of a warp
    const int i = half / 2, second = half % 2;
    const int row = item.block * TileT::kRows + (me.group * TileT::kM64 + i) * 64 + me.warp * 16 +
                    second * 8 + me.lane / 4;
    const float bias = item.pass == 0 ? bias_of<Product::up>(p.up_bias, item.expert, row)
                                      : bias_of<Product::down>(p.down_bias, item.expert, row);
#pragma unroll
    for (int j = 0; j < TileT::kTokens / 8; ++j) {
      acc[i][4 * j + 2 * second] += bias;
      acc[i][4 * j + 2 * second + 1] += bias;
    }
  }
}

/// Where the sums of an item's first part are handed on: this thread's first four.
template <class TileT>
__device__ __forceinline__ float4* carry_of(const Shared<TileT>& shared, const MoeFfnParams& p,
                                            const Item& item) {
  const int64_t row = shared.plan.hidden_row(item.expert) + item.row;
  return reinterpret_cast<float4*>(p.carry + row * p.width +
                                   int64_t{item.block} * TileT::kRows * item.columns) +
         threadIdx.x;
}

/// The sums that the first part left.
template <class TileT>
__device__ __forceinline__ void take_carry(Sums<TileT>& acc, Shared<TileT>& shared,
                                           const MoeFfnParams& p, const Item& item,
                                           TokenCursor<TileT>& at) {
  // Tokens are asked for when the first part is known to be complete.
  at.wait_full(shared, units_of(item));
  const float4* from = carry_of(shared, p, item);
#pragma unroll
  for (int j = 0; j < TileT::kTokens / 8; ++j) {
    if (8 * j >= item.columns) break;
#pragma unroll
    for (int i = 0; i < TileT::kM64; ++i, from += 128 * kNumConsumers) {
      const float4 sums = __ldcg(from);
      acc[i][4 * j] = sums.x;
      acc[i][4 * j + 1] = sums.y;
      acc[i][4 * j + 2] = sums.z;
      acc[i][4 * j + 3] = sums.w;
    }
  }
}

template <class TileT>
__device__ __forceinline__ void leave_carry(const Sums<TileT>& acc, Shared<TileT>& shared,
                                            const MoeFfnParams& p, const Item& item,
                                            uint32_t& handed, const Consumer& me) {
  float4* to = carry_of(shared, p, item);
#pragma unroll
  for (int j = 0; j < TileT::kTokens / 8; ++j) {
    if (8 * j >= item.columns) break;
#pragma unroll
    for (int i = 0; i < TileT::kM64; ++i, to += 128 * kNumConsumers) {
      __stcg(to,
             make_float4(acc[i][4 * j], acc[i][4 * j + 1], acc[i][4 * j + 2], acc[i][4 * j + 3]));
    }
  }
  wait_for_panel(shared, panel_of<TileT>(me.group), handed);
  hand_over(shared, me);
  handed ^= 1;
}

}  // namespace switchyard::cuda::sm90a
