// SPDX-License-Identifier: Apache-2.0
// What the families of one pre-norm decoder (grouped-query attention, rotary embedding, RMS norm,
// SwiGLU) share.
#pragma once
#include <optional>

#include "model/config.h"
#include "model/config_reader.h"
#include "model/family.h"

namespace switchyard::model {

/// Class defaults of a family that the base reader needs.
struct BaseDefaults {
  double rope_theta = 10000;
  double norm_eps = 1e-6;
  bool tied_embedding = false;
};

/// The keys that every family has: sizes, norms, rope, special tokens. Fills ModelConfig and the
/// attention spec that the family then adjusts; config.blocks is left empty.
struct Base {
  ModelConfig config;
  attention::GqaSpec attention;
  int num_layers = 0;
};
Result<Base> read_base(ConfigReader& reader, const BaseDefaults& defaults);

/// rope_theta, rope_scaling (old) or rope_parameters (new), for a head of `head_dim`.
Result<attention::RopeSpec> read_rope(ConfigReader& reader, double default_theta, int head_dim,
                                      int max_positions);

/// sliding_window: null, 0 or absent is no window.
Result<int> read_window(ConfigReader& reader);

/// decoder_sparse_step and mlp_only_layers: whether layer l is sparse.
struct SparsePattern {
  int64_t step = 1;
  std::vector<int64_t> dense_layers;
  bool sparse(int64_t layer) const noexcept;
};
Result<SparsePattern> read_sparse_pattern(ConfigReader& reader);

/// The names that all families of this shape share (prefix "model."), followed by a family's own.
std::vector<TensorName> with_base_names(std::initializer_list<TensorName> own);
/// The same, with the router and experts under mlp.: one tensor per expert matrix (gate_proj, up_proj, down_proj), or
/// fused.
std::vector<TensorName> with_mlp_expert_names(std::initializer_list<TensorName> own);

}  // namespace switchyard::model
