// SPDX-License-Identifier: Apache-2.0
#include "moe/route/sparsemixer.h"

#include <algorithm>
#include <cmath>

#include "moe/route/rows.h"

namespace switchyard::moe {
namespace {

// The softmax weight of `winner` among the experts near it; `gone` (or -1) has no part.
float weight_near(const float* z, int num_experts, int winner, int gone, float jitter) {
  const float highest = z[winner];
  if (!std::isfinite(highest)) return 0;  // the second round found only masked experts
  float sum = 0;
  for (int e = 0; e < num_experts; ++e) {
    const float distance = (highest - z[e]) / std::max(std::abs(z[e]), highest);
    if (e != gone && !(distance > 2 * jitter)) sum += std::exp(z[e] - highest);
  }
  return 1 / sum;
}

}  // namespace

Status check_sparsemixer(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  if (spec.top_k != 2) {
    return fail(Code::bad_request, "router: top_k is {}, sparsemixer picks exactly 2", spec.top_k);
  }
  if (spec.score != Score::softmax || spec.weigh != Weigh::raw) {
    return fail(Code::unsupported,
                "router: sparsemixer has its own weights, expected the softmax score, raw");
  }
  if (spec.selection_bias || spec.num_groups > 1 || spec.max_devices > 0 || spec.noise != 0 ||
      spec.random_second) {
    return fail(Code::unsupported,
                "router: sparsemixer knows no selection bias, groups, device limit, noise or "
                "random second expert");
  }
  return {};
}

int64_t sparsemixer(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                    const Stream& stream) {
  return for_each_row(
      spec, in, out, stream, [&](int64_t, const float* logits, int32_t* expert, float* weight) {
        top_k(logits, spec.num_experts, 2, expert);
        weight[0] = spec.scale * weight_near(logits, spec.num_experts, expert[0], -1, spec.jitter);
        weight[1] =
            spec.scale * weight_near(logits, spec.num_experts, expert[1], expert[0], spec.jitter);
      });
}

}  // namespace switchyard::moe
