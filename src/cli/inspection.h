// SPDX-License-Identifier: Apache-2.0
// What `switchyard inspect` shows of a model folder: its config and the headers of its checkpoint.
// No weight is read.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/source.h"
#include "cli/terminal.h"
#include "model/config.h"

namespace switchyard::cli {

/// Tensors that differ in their layer and expert alone.
struct TensorGroup {
  std::string pattern;  ///< "model.layers.{L}.mlp.experts.{E}.up_proj.weight"
  std::string part;     ///< "experts"; "unknown" when the family has no such tensor
  DType dtype = DType::f32;
  Shape shape;
  int64_t count = 0, bytes = 0;
};

struct Inspection {
  std::string path;
  model::ModelConfig config;
  model::ParameterCount parameters;
  checkpoint::Source source;
  std::vector<TensorGroup> groups;  ///< in the order of the names
  std::vector<std::pair<std::string, int64_t>>
      part_bytes;  ///< bytes in the files, in a fixed order of parts
};

/// Errors: those of reading the config and opening the checkpoint.
Result<Inspection> inspect_model(const std::string& folder);

enum class TensorDetail : uint8_t { groups, every_tensor };
std::string inspection_text(const Inspection& inspection, TensorDetail detail, const Look& look);
void write_inspection(JsonWriter& json, const Inspection& inspection, TensorDetail detail);

}  // namespace switchyard::cli
