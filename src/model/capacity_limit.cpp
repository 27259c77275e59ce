// SPDX-License-Identifier: Apache-2.0
#include "model/capacity_limit.h"

#include "moe/capacity.h"

namespace switchyard::model {

Status limit_capacity(ModelConfig& config, const CapacityLimit& limit) {
  SWITCHYARD_ASSIGN(const Overflow overflow, moe::find_overflow(limit.overflow));
  SWITCHYARD_ASSIGN(const moe::CapacityRounding* rounding,
                    moe::find_capacity_rounding(limit.rounding));
  if (limit.factor != 0 && config.num_moe_blocks() == 0) {
    return fail(Code::bad_request,
                "capacity_factor is {}, but no layer of this model has experts: leave it at 0",
                limit.factor);
  }
  for (BlockSpec& block : config.blocks) {
    if (!block.router) continue;
    block.router->capacity_factor = limit.factor;
    block.router->capacity_rounding = rounding->name;
    block.router->overflow = limit.factor == 0 ? Overflow::none : overflow;
    SWITCHYARD_TRY(block.router->check());
  }
  return {};
}

}  // namespace switchyard::model
