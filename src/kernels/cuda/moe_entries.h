// SPDX-License-Identifier: Apache-2.0
// The device entries of MoeFfn, and what they share. Free of CUDA headers: .cpp files include it.
#pragma once
#include "kernels/ops/moe_ffn.h"

namespace switchyard::cuda {

/// What the launches before combine have left in the workspace: it reads the rows, and lets go of what fits into the L2.
struct ExpertRows {
  const void* rows = nullptr;    ///< [R, D] bf16
  bool let_go = false;           ///< of the rows too: the L2 still has them; D % 64 == 0
  const void* hidden = nullptr;  ///< panels, aligned to 128 bytes
  unsigned panels = 0;
  int64_t panel_bytes = 0, used_bytes = 0;  ///< used: of each panel, from its beginning
};

/// y += scale * (sum over k of weight * rows[pick_row] + shared), then next_x. See MoeFfn.
void launch_combine(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                    const ExpertRows& from, void* stream) noexcept;

/// Only next_x, from a y that is complete; nothing when args.next_x is null.
void launch_next_norm(const MoeFfn::Problem& problem, const MoeFfn::Args& args,
                      void* stream) noexcept;

/// Weights that a gate's launch may ask for because the experts' launch reads them first, and nobody writes them; none where it gains
/// nothing. Args: of the call, `routed` if the gate routes.
struct FirstWeights {
  const void* data = nullptr;
  int64_t bytes = 0;
};
FirstWeights first_weights(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem,
                           const MoeFfn::Args& args) noexcept;

/// Bytes of `rows`, which entries with a combine of its own keep behind their hidden rows.
inline int64_t result_bytes(const MoeFfn::Problem& problem) noexcept {
  return problem.max_tokens * problem.rule.top_k * problem.width * 2;
}
/// MoeFfn::Kernel::suits of an entry for any number of tokens.
inline bool suits_any(const MoeFfn::Problem&, int64_t) noexcept { return true; }

extern const MoeFfn::Kernel kMoeFfnSm80;        // any T, sm_80 and newer
extern const MoeFfn::Kernel kMoeFfnSm90a;       // any T on Hopper
extern const MoeFfn::Kernel kMoeFfnSm90aSmall;  // T <= 16 on Hopper, from the logits, one launch

}  // namespace switchyard::cuda
