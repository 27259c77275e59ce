// SPDX-License-Identifier: Apache-2.0
// The norm before the experts, the gate's logits, the picks of some hundred tokens and the order of their rows on Hopper, in one launch:
// the residual stream is read once.
//
//   logits[t, e] = (sum over k of x[t, k] w[k] gate[e, k]) / rms(x[t]);   rows[t] = rms_norm(x[t]) * w
//   cluster  8 blocks share 40 tokens, so that 512 need no more clusters than an H200 holds at once (15); block r has the r-th part of D
//            of all of them and of all experts, so that a gate row and a token are read by one block each; 256 inputs at a time
//   factors  x w in two parts of bf16 (high + low, 2^-17 of the factor at most), the gate as split_gate made it: one part where
//            its weights are bf16, else two, and only low * low is left out. The first gate rows are in registers before the launch before
//            has ended
//   join     a block sends each of the 8 its sums of that one's 5 tokens, and its squares of all, out of registers; mbarriers count the bytes,
//            as a barrier of the cluster would wait for a fence of the device. Each adds up in the order of the blocks: a token's bits depend on its row, D
//            and E alone. A warp then makes a token's picks (route_token.cuh), and the first block places them (norm_gate_place_sm90a.cuh);
//            what nobody waits for, the normed rows, is written meanwhile
//   cost     4 T D bytes read, 2 T D written; 2 E D / 8 of the gate for each 40 tokens and block, from the L2
// Source: Zhang and Sennrich 2019, arXiv 1910.07467 (RMS norm); Henry, Tang and Heinecke 2019, arXiv 1904.06376 (bf16 in parts).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/norm_gate_place_sm90a.cuh"
#include "kernels/cuda/norm_gate_product_sm90a.cuh"
#include "kernels/cuda/route_token.cuh"

namespace switchyard::cuda {
namespace gate_parts {
namespace {

// Four values to the same place of another block, whose barrier counts the bytes.
__device__ __forceinline__ void send_to_block(const float* to, const float4& v,
                                              const uint64_t* barrier, int block) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address_in_block(shared_address(to), block)),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address_in_block(shared_address(barrier), block))
      : "memory");
}
__device__ __forceinline__ int block_rank() { return static_cast<int>(blockIdx.x) % kBlocks; }

// Barriers and bits, known to the whole cluster after its barrier.
template <class Shared>
__device__ __forceinline__ void set_up(Shared& s) {
  const int e = static_cast<int>(threadIdx.x);
  if (e < Shared::kRoom) s.chosen[e][0] = s.chosen[e][1] = s.count[e] = 0;
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&s.squares_full), 1);
    barrier_init(shared_address(&s.parts_full), 1);
    barrier_init_done();
    cluster_barriers_init_done();
    barrier_arrive_expect(shared_address(&s.squares_full), sizeof(s.all_squares));
    barrier_arrive_expect(shared_address(&s.parts_full), kBlocks * Shared::kPartBytes);
  }
  __syncthreads();
  cluster_arrive();
}

// What a thread keeps from one end of the launch to the other. x holds the last chunk.
template <class SplitT>
struct Registers {
  GateRows<SplitT> gate;
  WarpRows x;
  RowPart weight;
  float sum[kSums] = {}, squares[kWarpTokens] = {};
};

// This block's products and squares. The first gate rows and weights are there.
template <class SplitT>
__device__ __forceinline__ void multiply_slice(Registers<SplitT>& r, typename SplitT::Shared& s,
                                               const NormGateParts& a, const ClusterTokens& tokens,
                                               const Slice& slice) {
#pragma unroll 1
  for (int chunk = slice.begin; chunk < slice.end; chunk += kChunk) {
    r.x.load(a.norm, tokens, chunk, slice.end);
    if (chunk > slice.begin) {
      r.weight.load(a.norm.weight, chunk, slice.end);
      r.gate.load(a.gate_high, 2 * a.norm.width, 0, a.num_experts, chunk, slice.end);
      __syncthreads();  // all have multiplied the factors before
    }
    r.x.add_squares(r.squares);
    r.x.store_factors(s, r.weight);
    fence_async_shared();
    __syncthreads();
#pragma unroll 1
    for (int portion = 0; portion < SplitT::kPortions; ++portion) {
      if (portion > 0) {
        r.gate.load(a.gate_high, 2 * a.norm.width, portion, a.num_experts, chunk, slice.end);
      }
      r.gate.template multiply<true>(r.sum, s, portion);
      if (a.gate_low == nullptr) continue;
      r.gate.load(a.gate_low, a.norm.width, portion, a.num_experts, chunk, slice.end);
      r.gate.template multiply<false>(r.sum, s, portion);
    }
  }
}

// Whole block: its sums and squares to those that join them.
template <class SplitT>
__device__ __forceinline__ void send_parts(const Registers<SplitT>& r, typename SplitT::Shared& s) {
  constexpr int kRowQuads = SplitT::Shared::kStride / 4, kSquareQuads = kTokens / 4;
  store_squares(s, r.squares);
  store_sums<SplitT>(s, r.sum);
  __syncthreads();
  cluster_wait();  // all are set up
  const int rank = block_rank(), thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = thread; i < kTokens * kRowQuads; i += kThreads) {
    const int token = i / kRowQuads, at = token % kOwnTokens * kRowQuads + i % kRowQuads;
    send_to_block(s.parts[rank] + at * 4, sum_of_shares<SplitT>(s, i), &s.parts_full,
                  token / kOwnTokens);
  }
  const int i = kThreads - 1 - thread;  // these have one sum less
  if (i >= kBlocks * kSquareQuads) return;
  const int quad = i % kSquareQuads * 4;
  send_to_block(s.all_squares[rank] + quad, *reinterpret_cast<const float4*>(s.squares + quad),
                &s.squares_full, i / kSquareQuads);
}

// This block's inputs of all tokens, normed.
template <class SplitT>
__device__ __forceinline__ void write_rows(Registers<SplitT>& r, const typename SplitT::Shared& s,
                                           const NormRows& norm, const ClusterTokens& tokens) {
  const Slice slice(static_cast<int>(norm.width));  // again: registers are few
  float scale[kWarpTokens];
#pragma unroll
  for (int i = 0; i < kWarpTokens; ++i) {
    scale[i] = join_scale(s, norm, min(warp_id() + i * kWarps, kTokens - 1));
  }
#pragma unroll 1
  for (int chunk = slice.begin; chunk < slice.end; chunk += kChunk) {
    if (!slice.one_chunk()) r.x.load(norm, tokens, chunk, slice.end);
    r.weight.load(norm.weight, chunk, slice.end);
    r.x.store_normed(norm, tokens, r.weight, scale, chunk, slice.end);
  }
}

// One warp: the logits of one of this block's own tokens, out of all blocks' sums.
template <class Shared>
__device__ __forceinline__ void join_logits(Shared& s, const NormGateParts& a, int own, int64_t t,
                                            float scale) {
  for (int e = lane_id(); e < a.num_experts; e += kWarp) {
    float sum = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) sum += s.parts[b][own * Shared::kStride + e];
    const float logit = sum * scale;
    s.logit[own][e] = logit;
    a.logits[t * a.num_experts + e] = logit;
  }
  __syncwarp();
}

// One warp: its picks of token t, told to all.
template <class SplitT>
__device__ __forceinline__ void score_token(const typename SplitT::Shared& s,
                                            const GateScores& scores, int own, int64_t t) {
  const int lane = lane_id();
  const RouteRule& rule = scores.rule;
  const DeviceRouting& routing = scores.routing;
  const float* logits = s.logit[own];
  const Pick pick = choose_experts<SplitT::kPerLane>(rule, logits, nullptr, lane);
  tell_picks(scores, t, pick.expert, s.launch);
  const float weight = pick_weight(rule, logits, pick, lane);
  if (lane == 0 && !pick.usable) atomicAdd(routing.unusable, 1);
  if (lane >= rule.top_k) return;
  routing.expert[t * rule.top_k + lane] = pick.expert;
  routing.weight[t * rule.top_k + lane] = weight;
}

// One thread: this block's part. After its own first loads, which would wait behind it; and without turns or divisions, as all wait for
// this thread.
__device__ __forceinline__ void ask_for_next(const NormGateParts& a) {
  constexpr int kPiece = 16 << 10, kPieces = 8;
  int64_t at = int64_t{blockIdx.x} * kPieces * kPiece;
#pragma unroll 1
  for (int i = 0; i < kPieces && at + kPiece <= a.next_bytes; ++i, at += kPiece) {
    ask_for(static_cast<const char*>(a.next) + at, kPiece);
  }
}

template <class SplitT>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    norm_gate_parts_kernel(const __grid_constant__ NormGateParts a) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& s = *reinterpret_cast<typename SplitT::Shared*>(bytes);
  const Slice slice(static_cast<int>(a.norm.width));
  const ClusterTokens tokens(static_cast<int>(a.norm.tokens));
  const bool places = a.scores.words != nullptr;
  Registers<SplitT> r;
  r.weight.load(a.norm.weight, slice.begin, slice.end);
  r.gate.load(a.gate_high, 2 * a.norm.width, 0, a.num_experts, slice.begin, slice.end);
  set_up(s);
  let_next_begin();
  if (threadIdx.x == kThreads - 1) ask_for_next(a);
  wait_for_previous();
  if (places && threadIdx.x == 0) {
    s.launch = static_cast<uint32_t>(read_tagged(a.scores.words)) + 1;
  }
  multiply_slice(r, s, a, tokens, slice);
  send_parts(r, s);
  barrier_wait(shared_address(&s.squares_full), 0);
  const int token = block_rank() * kOwnTokens + warp_id();
  if (warp_id() < kOwnTokens) {
    barrier_wait(shared_address(&s.parts_full), 0);
    if (token < tokens.count) {
      join_logits(s, a, warp_id(), tokens.first + token, join_scale(s, a.norm, token));
      if (places) score_token<SplitT>(s, a.scores, warp_id(), tokens.first + token);
    }
  }
  write_rows(r, s, a.norm, tokens);
  if (places && block_rank() == 0) {
    place_picks(s, a.scores, static_cast<int>(a.norm.tokens), tokens);
  }
}

template <class SplitT>
struct Launch {
  static constexpr int kBytes = static_cast<int>(sizeof(typename SplitT::Shared));

  static void run(const NormGateParts& args, StreamHandle stream) noexcept {
    (void)most_clusters();  // which raises the limit of shared memory, once
    const unsigned clusters = grid_of(args.norm.tokens, kTokens);
    launch_chained(norm_gate_parts_kernel<SplitT>, dim3(clusters * kBlocks), kThreads, kBytes,
                   stream, args);
  }
  /// That the device holds at once.
  static int most_clusters() noexcept {
    static const int most = std::min(
        clusters_at_once(norm_gate_parts_kernel<SplitT>, kBlocks, kThreads, kBytes), kMostClusters);
    return most;
  }
};

// Calls `with` with the launch for so many experts.
template <class With>
auto dispatch(int experts, const With& with) noexcept {
  if (experts <= kGroupExperts) return with(Launch<Split<1>>{});
  if (experts <= 2 * kGroupExperts) return with(Launch<Split<2>>{});
  return with(Launch<Split<4>>{});
}

}  // namespace
}  // namespace gate_parts

bool norm_gate_parts_accepts(const NormGateParts& args) noexcept {
  const bool fits = device_chains() && args.norm.row == nullptr &&
                    args.norm.width % gate_parts::kSlice == 0 &&
                    args.num_experts <= gate_parts::kMaxExperts;
  const auto most = [](auto launch) { return launch.most_clusters(); };
  return fits && static_cast<int64_t>(grid_of(args.norm.tokens, gate_parts::kTokens)) <=
                     gate_parts::dispatch(args.num_experts, most);
}

int norm_gate_blocks(int64_t tokens) noexcept {
  return static_cast<int>(grid_of(tokens, gate_parts::kTokens)) * gate_parts::kBlocks;
}

void norm_gate_parts(const NormGateParts& args, StreamHandle stream) noexcept {
  if (args.norm.tokens == 0) return;
  gate_parts::dispatch(args.num_experts, [&](auto launch) { launch.run(args, stream); });
}

}  // namespace switchyard::cuda
