// SPDX-License-Identifier: Apache-2.0
#include "moe/route/gshard_top_2.h"

#include <cmath>

#include "moe/route/draw.h"
#include "moe/route/rows.h"

namespace switchyard::moe {

Status check_gshard_top_2(const RouterSpec& spec) {
  SWITCHYARD_TRY(spec.check());
  if (spec.top_k != 2) {
    return fail(Code::bad_request, "router: top_k is {}, gshard_top_2 picks exactly 2", spec.top_k);
  }
  if (spec.weigh != Weigh::softmax_after_top_k) {
    return fail(Code::unsupported,
                "router: gshard_top_2 divides its two scores by their sum, expected "
                "softmax_after_top_k");
  }
  if (spec.num_groups > 1 || spec.max_devices > 0 || spec.noise != 0 || spec.jitter != 0) {
    return fail(Code::unsupported,
                "router: gshard_top_2 knows no groups, device limit, noise or jitter");
  }
  return {};
}

int64_t gshard_top_2(const RouterSpec& spec, const SelectInput& in, const SelectOutput& out,
                     const Stream& stream) {
  return for_each_row(
      spec, in, out, stream, [&](int64_t t, const float* logits, int32_t* expert, float* weight) {
        top_k(logits, spec.num_experts, 2, expert);
        const float ratio = std::exp(logits[expert[1]] - logits[expert[0]]);
        const float first = 1 / (1 + ratio), second = ratio / (1 + ratio);
        weight[0] = first * spec.scale;
        weight[1] = second * spec.scale;
        if (spec.random_second && !(2 * second > draw_uniform(in.random, t, Draw::second_expert))) {
          expert[1] = -1;
          weight[1] = 0;
        }
      });
}

}  // namespace switchyard::moe
