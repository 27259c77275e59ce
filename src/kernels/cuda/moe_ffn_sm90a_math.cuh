// SPDX-License-Identifier: Apache-2.0
// The consumers of the Hopper MoE kernel: products (moe_ffn_sm90a_multiply.cuh), then results (moe_ffn_sm90a_results.cuh), item
// by item.
#pragma once
#include "kernels/cuda/moe_ffn_sm90a_results.cuh"

namespace switchyard::cuda::sm90a {

/// `handed` is the parity of what was handed to the sender, and counts on.
template <class TileT>
__device__ __forceinline__ void consume_item(Shared<TileT>& shared, const MoeFfnParams& p,
                                             const Item& item, Reading<TileT>& at,
                                             uint32_t& handed) {
  const Consumer me = Consumer();
  Sums<TileT> acc = {};  // without a first value their life would reach from item to item
  if constexpr (TileT::kSplits) {
    if (item.carried) take_carry<TileT>(acc, shared, p, item, at.tokens);
  }
  multiply_exact<TileT>(acc, shared, item, at, me);
  if constexpr (TileT::kSplits) {
    if (!item.last) {
      leave_carry<TileT>(acc, shared, p, item, handed, me);
      return;
    }
  }
  if (p.biased) add_bias<TileT>(acc, p, item, me);
  if (item.pass == 0) {
    stage_hidden<TileT>(acc, shared, p, item, handed, me);
  } else {
    write_rows<TileT>(acc, shared, p, item, me);
  }
}

template <class TileT>
__device__ __forceinline__ void consume(Shared<TileT>& shared, const MoeFfnParams& p) {
  RingCursor<kQueue> queue;
  Reading<TileT> at;
  uint32_t handed = 0;
  bool in_pass_2 = false;
  while (true) {
    const Item& item = next_item(shared, queue);
    if (item.steps == 0) break;
    if (item.pass == 1 && !in_pass_2) {
      in_pass_2 = true;  // from here on the staging is ours: the last panels must have left
      for (int i = 0; i < TileT::kPanels; ++i) wait_for_panel(shared, i, handed);
    }
    consume_item<TileT>(shared, p, item, at, handed);
    leave_item(shared, queue);
  }
}

}  // namespace switchyard::cuda::sm90a
