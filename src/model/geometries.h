// SPDX-License-Identifier: Apache-2.0
// Shapes of published models, for measurements with random weights: no file is needed.
#pragma once
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace switchyard::model {

struct Geometry {
  std::string_view name;    ///< "qwen3-30b-a3b"
  std::string_view config;  ///< what its config.json says, as far as it matters
};

std::span<const Geometry> geometries();
/// The model's config, as its family reads it. Errors: Code::bad_request with the known names.
Result<ModelConfig> read_geometry(std::string_view name);

}  // namespace switchyard::model
