// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel of an operation, once, at load; explains the choice on request.
//
// The table is walked best first. An entry is skipped when the machine lacks its needs (after SWITCHYARD_MAX_ISA) or
// when accept() refuses. SWITCHYARD_KERNEL=grouped_gemm=ref pins an entry by the end of its name; so does moe_ffn=sm80 for the
// experts of a CUDA device, whose entries are chosen step by step (ops/moe_ffn.h).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/op.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/grouped_gemm.h"
#include "kernels/ops/moe_ffn.h"
#include "kernels/ops/norm_rope_act.h"
#include "kernels/ops/permute.h"
#include "kernels/ops/route.h"

namespace switchyard::kernels {

/// The entries of an operation for the CPU, best first, `ref` last. Instantiated for every op in select.cpp.
template <class Op>
std::span<const Kernel<Op>> table();

/// The first acceptable entry. Errors: Code::unsupported when a pinned name is unknown, cannot run here, or refuses.
template <class Op>
Result<Bound<Op>> select(const typename Op::Problem& problem);

/// The device's entry that is pinned, or null: none is. `sm` is compute capability * 10. Errors: Code::unsupported when it is
/// unknown, is for other devices, refuses, or does not take every step of up to problem.max_tokens.
Result<const MoeFfn::Kernel*> pinned_moe_ffn(const MoeFfn::Problem& problem, int sm);

/// What select() thought of every entry.
struct Candidate {
  std::string_view name;
  std::string
      verdict;  ///< "chosen", "accepts", "refused: ...", "needs amx_tile, absent here", "baseline"
};
template <class Op>
std::vector<Candidate> explain(const typename Op::Problem& problem);

/// The same for an op by name and a problem in text, for `switchyard inspect kernels`:
///   explain_text("grouped_gemm", "m=64 n=1408 k=2048 groups=64 weight=bf16 fusion=swiglu")
/// Errors: Code::bad_request naming the unknown op, key or value, and listing the known ones.
Result<std::vector<Candidate>> explain_text(std::string_view op, std::string_view problem);

/// Names of all ops that explain_text knows.
std::span<const std::string_view> op_names();

}  // namespace switchyard::kernels
