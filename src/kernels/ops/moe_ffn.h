// SPDX-License-Identifier: Apache-2.0
// The experts of a MoE layer on a device, from rows in token order back to the residual stream:
//
//   y[t] += scale * ( sum over k of weight[t, k] * expert(x[t])  +  shared_weight[t] * shared[t] ),   k ascending, in f32
//   expert e:  h = act(x G_e^T + g_e) * (x U_e^T + u_e)  [F], rounded to bf16;   h W_e^T + w_e  [D]
//   weight_on_input: the expert reads weight[t, k] * x[t], rounded to bf16, and its result weighs 1
//
//   x [T, D] bf16, D % 8 == 0; weights bf16 as ops/moe_pack.h; products accumulate in f32; y [T, D] f32
//   next_x (optional) [T, D] bf16 = rms_norm(y[t]) * next_norm: what the next layer reads
// A pick of -1 adds nothing. No atomics touch a result: the same call gives the same bits, and within one kernel a
// token's bits do not depend on the others of its batch.
// Source: Shazeer 2020, arXiv 2002.05202 (gated linear units).
// This header stays free of the host's heavy headers: device code includes it.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/ops/l2_sides.h"
#include "kernels/ops/moe_pack.h"
#include "kernels/ops/moe_route.h"
#include "tensor/dtype.h"

namespace switchyard {

/// act(gate) * up.
enum class GluActivation : uint8_t {
  swiglu,      ///< silu
  geglu_tanh,  ///< gelu by tanh
  geglu_erf,   ///< gelu by erf
  reglu,       ///< max(0, gate)
};

struct MoeFfn {
  struct Problem {
    RouteRule rule;         ///< E, K and how picks are made
    int64_t width = 0;      ///< D
    int64_t ffn_width = 0;  ///< F
    GluActivation activation = GluActivation::swiglu;
    DType weight = DType::bf16;
    int64_t max_tokens = 0;
    bool weight_on_input = false;
    /// A token's bits do not depend on how many tokens there are: one kernel for every T.
    bool deterministic = false;
  };

  /// What a call leaves out, for measurements of its parts; y is not complete then.
  enum class Stop : uint8_t { never, after_up, after_down };

  /// 32-bit words that kernels count arrivals in and hand values on in: zero when created, and left fit for the next call.
  static constexpr int kSyncWords = 768 << 10;

  struct Args {
    const void* x = nullptr;  ///< [T, D] bf16
    int64_t tokens = 0;       ///< T; 0 does nothing
    /// Made by the route kernel; or, when the entry says `routes`, by this very launch, which then writes `routing` too.
    DeviceRouting routing;
    const float* logits = nullptr;  ///< [T, E]; null: routing.expert and routing.weight are given
    const float* bias = nullptr;    ///< [E] of the selection, or null
    const int32_t* live_tokens = nullptr;  ///< as MoeRoute::Args
    const void* w13 = nullptr;             ///< [E, 2 Fp, Dp] packed
    const void* w2 = nullptr;              ///< [E, Dp, Fp] packed
    L2Sides sides;                         ///< by which both are placed
    const float* up_bias = nullptr;        ///< [E, 2, F] of gate, then of up; or null
    const float* down_bias = nullptr;      ///< [E, D], or null
    const float* shared = nullptr;         ///< [T, D] f32, or null
    const float* shared_weight = nullptr;  ///< [T] f32, or null: 1
    float scale = 1;
    float* y = nullptr;                ///< [T, D] f32: the residual stream
    const float* next_norm = nullptr;  ///< [D] f32; null: no next_x
    float next_epsilon = 0;
    void* next_x = nullptr;     ///< [T, D] bf16
    uint32_t* sync = nullptr;   ///< [kSyncWords]; of one call at a time
    void* workspace = nullptr;  ///< the entry's workspace bytes, aligned to 1024; any content
    Stop stop = Stop::never;    ///< entries that do not route obey it
    bool routed = false;        ///< `routing` is complete: run_moe_layer has nothing to route
    int64_t rows = 0;           ///< at least those that the routing has; 0: T K
  };

  /// One implementation. `stream` is a cudaStream_t; errors of a launch stay with the device until it is asked.
  struct Kernel {
    std::string_view name;       ///< "moe_ffn.cuda.sm80"
    int sm_min = 0, sm_max = 0;  ///< compute capability * 10, both ends included
    bool routes = false;         ///< starts from the logits or the picks
    /// Null when the problem is accepted, else why not, in plain words.
    const char* (*refusal)(const Problem&) noexcept;
    /// Whether this entry is the right one for `tokens` tokens; the last entry is right for all.
    bool (*suits)(const Problem&, int64_t tokens) noexcept;
    int64_t (*workspace)(const Problem&) noexcept;
    void (*run)(const Problem&, const Args&, void* stream) noexcept;
  };
};

/// All entries, best first; empty when built without CUDA.
std::span<const MoeFfn::Kernel> moe_ffn_kernels() noexcept;

/// The first entry for this problem, device (compute capability * 10) and number of tokens; null: none accepts.
const MoeFfn::Kernel* choose_moe_ffn(const MoeFfn::Problem& problem, int sm,
                                     int64_t tokens) noexcept;
/// Workspace for every entry that may be chosen for the problem, routing included; aligned to 1024.
int64_t moe_layer_workspace(const MoeFfn::Problem& problem, int sm) noexcept;
/// From logits (or given picks) to y by the chosen entry: routes first unless that entry does. Args::routing must be set.
void run_moe_layer(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem,
                   const MoeFfn::Args& args, void* stream) noexcept;

}  // namespace switchyard
