// SPDX-License-Identifier: Apache-2.0
// config.json: any object is read by its family or refused; what is read passes its own check without overflow, so that
// sizes computed from it make sense.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"

namespace {

using namespace switchyard;

Result<model::ModelConfig> read(const Json& json) {
  SWITCHYARD_ASSIGN(const model::Family* family, model::find_family(json));
  SWITCHYARD_ASSIGN(model::ModelConfig config, family->parse(json));
  SWITCHYARD_TRY(config.check());
  return config;
}

void check_router(const RouterSpec& router) {
  SWITCHYARD_CHECK(router.check().ok(), "{}", router.check().error().message);
  SWITCHYARD_CHECK(router.top_k >= 1 && router.top_k <= router.num_experts, "{} of {}",
                   router.top_k, router.num_experts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!json.ok()) return 0;
  const Result<model::ModelConfig> config = read(*json);
  if (!config.ok()) {
    SWITCHYARD_CHECK(!config.error().message.empty(), "a refusal without a reason");
    return 0;
  }
  for (const model::BlockSpec& block : config->blocks) {
    if (block.router) check_router(*block.router);
  }
  const model::ParameterCount count = model::count_parameters(*config);
  SWITCHYARD_CHECK(count.active >= 0 && count.total >= count.active, "{} of {} parameters active",
                   count.active, count.total);
  SWITCHYARD_CHECK(model::Model::kv_block_bytes(*config, 16, DType::bf16) > 0, "an empty cache");
  return 0;
}
