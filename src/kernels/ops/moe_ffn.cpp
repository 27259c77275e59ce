// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/moe_ffn.h"

#include <algorithm>

namespace switchyard {
namespace {

bool may_run(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem, int sm) noexcept {
  return kernel.sm_min <= sm && sm <= kernel.sm_max && kernel.refusal(problem) == nullptr;
}

int64_t aligned(int64_t bytes) noexcept { return (bytes + 1023) / 1024 * 1024; }

// The experts' workspace stands behind that of routing.
int64_t route_workspace(const MoeFfn::Problem& problem) noexcept {
  return aligned(MoeRoute::workspace_bytes({problem.rule, problem.max_tokens}));
}

}  // namespace

const MoeFfn::Kernel* choose_moe_ffn(const MoeFfn::Problem& problem, int sm,
                                     int64_t tokens) noexcept {
  for (const MoeFfn::Kernel& kernel : moe_ffn_kernels()) {
    if (may_run(kernel, problem, sm) && kernel.suits(problem, tokens)) return &kernel;
  }
  return nullptr;
}

int64_t moe_layer_workspace(const MoeFfn::Problem& problem, int sm) noexcept {
  int64_t most = 0;
  for (const MoeFfn::Kernel& kernel : moe_ffn_kernels()) {
    if (may_run(kernel, problem, sm)) most = std::max(most, kernel.workspace(problem));
  }
  return route_workspace(problem) + aligned(most);
}

void run_moe_layer(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem,
                   const MoeFfn::Args& args, void* stream) noexcept {
  MoeFfn::Args own = args;
  own.workspace = static_cast<char*>(args.workspace) + route_workspace(problem);
  if (!kernel.routes || args.tokens == 0) {
    MoeRoute::run({problem.rule, problem.max_tokens},
                  {.logits = args.logits,
                   .bias = args.bias,
                   .tokens = args.tokens,
                   .live_tokens = args.live_tokens,
                   .routing = args.routing,
                   .workspace = args.workspace},
                  stream);
  }
  kernel.run(problem, own, stream);
}

}  // namespace switchyard
