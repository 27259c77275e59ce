// SPDX-License-Identifier: Apache-2.0
// The warp of the Hopper MoE kernel that tells other blocks what the consumers have made: it sends hidden panels out of shared
// memory and counts them, and it counts first parts. To count is a release, which lasts until what the multiprocessor has under way
// has landed (3 us while weights stream): a warp that does nothing else can wait for that.
//
//   staged   kPanelWarps of consumers: all of the panel is in shared memory, or all sums of the part are written
//   drained  1 arrival: the panel has been read, so the next may be staged
#pragma once
#include "kernels/cuda/moe_ffn_sm90a_load.cuh"

namespace switchyard::cuda::sm90a {

/// The counter of an expert's parts.
__device__ __forceinline__ int counter_of(const MoeFfnParams& p, int expert) {
  return expert / parts_of(p.experts, kSyncGroups);
}

/// Whether the sender has to do with an item.
__device__ __forceinline__ bool is_sent(const Item& item) { return item.pass == 0 || !item.last; }

/// One thread: sends the staged panels out, part by part, and counts them. `parity` is that of `staged`, and counts on.
template <class TileT>
__device__ __forceinline__ void send_hidden(Shared<TileT>& shared, const MoeFfnParams& p,
                                            const Item& item, uint32_t& parity) {
  [[maybe_unused]] const uint64_t policy = evict_last_if(p.keeps_hidden);
  const int64_t first = shared.plan.hidden_row(item.expert) + item.row;
  for (int begin = 0; begin < item.columns; begin += TileT::kStaged, parity ^= 1) {
    const uint32_t bytes = min(item.columns - begin, TileT::kStaged) * kStepBytes;
    for (int panel = 0; panel < TileT::kPanels; ++panel) {
      const int64_t column = static_cast<int64_t>(item.block) * TileT::kPanels + panel;
      __nv_bfloat16* const to = p.hidden + (column * p.hidden_rows + first + begin) * kStepInputs;
      const uint32_t from = shared_address(shared.staging) + panel * TileT::kStagedBytes;
      barrier_wait(shared_address(&shared.staged[panel]), parity);
      if constexpr (TileT::kKeepsHidden) {
        bulk_store(to, from, bytes, policy);
      } else {
        bulk_store(to, from, bytes);
      }
      bulk_store_commit();
    }
    bulk_store_read_wait();
    for (int panel = 0; panel < TileT::kPanels; ++panel) {
      barrier_arrive(shared_address(&shared.drained[panel]));
    }
  }
  bulk_store_wait();
  fence_async_global();
  add_release(&p.sync[counter_of(p, item.expert)], TileT::kPanels);
}

/// One thread: counts a first part.
template <class TileT>
__device__ __forceinline__ void send_part(Shared<TileT>& shared, const MoeFfnParams& p,
                                          const Item& item, uint32_t& parity) {
  for (int panel = 0; panel < TileT::kPanels; ++panel) {
    barrier_wait(shared_address(&shared.staged[panel]), parity);
    barrier_arrive(shared_address(&shared.drained[panel]));
  }
  parity ^= 1;
  add_release(&p.sync[kSyncCarried + item.block], 1);
}

/// One warp.
template <class TileT>
__device__ __forceinline__ void send_results(Shared<TileT>& shared, const MoeFfnParams& p) {
  RingCursor<kQueue> queue;
  uint32_t parity = 0;
  Item item = take_item(shared, queue);
  for (; item.steps > 0; item = take_item(shared, queue)) {
    if (!is_sent(item)) continue;
    if (threadIdx.x % 32 == 0) {
      if (item.pass == 0) {
        send_hidden(shared, p, item, parity);
      } else {
        send_part(shared, p, item, parity);
      }
    }
    __syncwarp();
  }
}

}  // namespace switchyard::cuda::sm90a
