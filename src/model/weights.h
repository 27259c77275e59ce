// SPDX-License-Identifier: Apache-2.0
// Weights: from the checkpoint's maps into the layouts of the chosen kernels, many matrices at a
// time. Source pages are given back once they are packed, so that a load needs little more memory
// than the model.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"
#include "device/device.h"
#include "kernels/linear.h"
#include "model/block.h"
#include "model/tensor_map.h"

namespace switchyard::model {

/// Everything that filling a block needs.
struct WeightReader {
  const checkpoint::Source& source;
  const TensorMap& map;
  Pool& pool;
  /// Called with the bytes of source that have been packed since the last call.
  std::function<void(uint64_t)> on_bytes;
};

/// A small tensor as f32. Errors: Code::bad_file when a value is not finite.
Result<std::vector<float>> read_vector(const WeightReader& reader,
                                       const checkpoint::TensorEntry& entry);
/// Packs rows of several [n_i, k] tensors, one below the other, as the only slot of a dense layer.
Status pack_rows(const WeightReader& reader, Linear& linear,
                 std::initializer_list<const checkpoint::TensorEntry*> parts);
/// Fills every weight of block `layer`.
Status fill_block(const WeightReader& reader, const ModelConfig& config, int layer, Block& block);

}  // namespace switchyard::model
