// SPDX-License-Identifier: Apache-2.0
// Family: an architecture as a table entry: how to read its config.json and what its tensors are
// called.
//
// A family has no code beyond `parse`. What a model truly does differently is a named option of
// ModelConfig.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/config.h"

namespace switchyard::model {

/// What a tensor is for. The expected shape follows from the role and the config (tensor_map.cpp).
enum class TensorRole : uint8_t {
  embedding,       ///< [V, D]
  final_norm,      ///< [D]
  lm_head,         ///< [V, D]
  attention_norm,  ///< [D]
  ffn_norm,        ///< [D]
  q,
  k,
  v,  ///< [H Z, D], [G Z, D], [G Z, D]
  q_bias,
  k_bias,
  v_bias,
  o,       ///< [D, H Z]
  o_bias,  ///< [D]
  q_norm,
  k_norm,  ///< [Z], or [H Z] and [G Z]
  router,  ///< [E, D]
  expert_gate,
  expert_up,        ///< [F, D] of one expert
  expert_down,      ///< [D, F] of one expert
  experts_gate_up,  ///< [E, 2 F, D]: gate rows, then up rows
  experts_down,     ///< [E, D, F]
  shared_gate,
  shared_up,
  shared_down,     ///< [S, D], [S, D], [D, S]
  shared_gate_up,  ///< [2 S, D]
  shared_router,   ///< [1, D]
  dense_gate,
  dense_up,
  dense_down,  ///< [F, D], [F, D], [D, F]
  ignored,     ///< known to be of no use here
};

/// A name pattern: "{L}" stands for the layer's number, "{E}" for the expert's.
struct TensorName {
  TensorRole role;
  std::string_view pattern;
};

struct Family {
  std::string_view name;                             ///< "qwen3_moe"
  std::string_view models;                           ///< what people call them, for tables
  std::span<const std::string_view> model_types;     ///< config.json's model_type values
  Result<ModelConfig> (*parse)(const Json& config);  ///< errors name the key
  std::span<const TensorName> names;                 ///< every accepted spelling
};

/// All families, in the order of src/model/families/table.cpp.
std::span<const Family* const> families();
/// By model_type. Errors: Code::unsupported with the list of what is known.
Result<const Family*> find_family(const Json& config);
/// By Family::name; null when there is none.
const Family* find_family_named(std::string_view name) noexcept;

}  // namespace switchyard::model
