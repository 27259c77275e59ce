// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/moe_ffn.h"

#include <algorithm>

namespace switchyard {
namespace {

bool may_run(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem, int sm) noexcept {
  return kernel.sm_min <= sm && sm <= kernel.sm_max && kernel.refusal(problem) == nullptr;
}

int64_t aligned(int64_t bytes) noexcept { return (bytes + 1023) / 1024 * 1024; }

// The parts of a layer's workspace: routing's, weighed rows and what goes with them, and the entry's behind these.
struct Places {
  explicit Places(const MoeFfn::Problem& problem) noexcept {
    const int64_t rows = problem.max_tokens * problem.rule.top_k;
    weighed = aligned(MoeRoute::workspace_bytes({problem.rule, problem.max_tokens}));
    ones = weighed + (problem.weight_on_input ? aligned(rows * problem.width * 2) : 0);
    row_numbers = ones + (problem.weight_on_input ? aligned(rows * 4) : 0);
    entry = row_numbers + (problem.weight_on_input ? aligned(rows * 4) : 0);
  }
  int64_t weighed = 0, ones = 0, row_numbers = 0, entry = 0;
};

// From here on the experts read rows that carry their weights, and results weigh 1.
void weigh_input(const MoeFfn::Problem& problem, MoeFfn::Args& args, char* base, const Places& at,
                 void* stream) noexcept {
  const WeighedRows to{base + at.weighed, reinterpret_cast<float*>(base + at.ones),
                       reinterpret_cast<int32_t*>(base + at.row_numbers)};
  weigh_rows_on_device({args.x, args.tokens, problem.rule.top_k, problem.width}, args.routing, to,
                       stream);
  args.x = to.rows;
  args.routing.weight = to.ones;
  args.routing.row_token = to.row_numbers;
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
  return Places(problem).entry + aligned(most);
}

void run_moe_layer(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem,
                   const MoeFfn::Args& args, void* stream) noexcept {
  auto* const base = static_cast<char*>(args.workspace);
  const Places at(problem);
  MoeFfn::Args own = args;
  own.workspace = base + at.entry;
  if (!args.routed && (!kernel.routes || args.tokens == 0)) {
    MoeRoute::run({problem.rule, problem.max_tokens},
                  {.logits = args.logits,
                   .bias = args.bias,
                   .tokens = args.tokens,
                   .live_tokens = args.live_tokens,
                   .routing = args.routing,
                   .workspace = args.workspace},
                  stream);
  }
  if (problem.weight_on_input && args.tokens > 0) weigh_input(problem, own, base, at, stream);
  kernel.run(problem, own, stream);
}

}  // namespace switchyard
