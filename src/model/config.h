// SPDX-License-Identifier: Apache-2.0
// A model as data: a straight list of blocks, each with named options. Families fill it; nothing
// below knows families.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/gqa.h"
#include "attention/rope.h"
#include "base/result.h"
#include "kernels/ops/route.h"

namespace switchyard::model {

/// An always-on feed-forward beside the routed experts.
struct SharedExpertSpec {
  int width = 0;       ///< 0: none
  bool gated = false;  ///< multiplied by sigmoid(gate . x), one number per token
};

struct BlockSpec {
  attention::GqaSpec attention;
  std::optional<RouterSpec> router;  ///< none: a dense feed-forward of ffn_width
  int ffn_width = 0;                 ///< F of each expert, or of the dense feed-forward
  SharedExpertSpec shared;
};

struct ModelConfig {
  std::string family;        ///< for messages alone
  std::string architecture;  ///< the config's class name
  int width = 0;             ///< D
  int vocab = 0;             ///< V
  int max_positions = 0;
  float norm_eps = 1e-6f;
  attention::RopeSpec rope;
  bool tied_embedding = false;
  float embedding_scale = 1, residual_scale = 1;
  float logit_scale = 1;  ///< multiplies the logits
  std::vector<BlockSpec> blocks;
  std::vector<int32_t> eos_ids;  ///< config.json's, when generation_config.json has none

  int num_moe_blocks() const noexcept;
  /// Refuses what cannot be run or makes no sense, as Code::bad_file naming the field.
  Status check() const;
};

/// Parameters by part, from the config alone.
struct ParameterCount {
  int64_t embedding = 0, attention = 0, router = 0, experts = 0, shared = 0, dense_ffn = 0,
          norms = 0, lm_head = 0;
  int64_t total = 0,
          active = 0;  ///< active: used for one token (embedding rows not read are not counted)
};
ParameterCount count_parameters(const ModelConfig& config);

}  // namespace switchyard::model
