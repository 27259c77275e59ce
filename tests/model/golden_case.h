// SPDX-License-Identifier: Apache-2.0
// A golden of tests/golden/families: inputs and expected outputs of a tiny model, made by
// scripts/make_golden.py.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/source.h"

namespace switchyard::test {

class GoldenCase {
 public:
  /// The folder that holds golden.json and golden.safetensors.
  static Result<GoldenCase> open(const std::string& folder);

  /// Whether prefill, single tokens and chunks give the same logits (not with dynamic rope).
  bool modes_agree() const { return modes_agree_; }
  int num_sequences() const { return num_sequences_; }
  double bf16_rms_error() const { return bf16_rms_error_; }  ///< of the reference itself
  std::vector<std::string> layouts() const {
    return layouts_;
  }  ///< folders, the case's own included
  const std::vector<int>& sparse_layers() const { return sparse_layers_; }

  std::vector<int32_t> integers(const std::string& name) const;
  std::vector<float> floats(const std::string& name) const;

 private:
  checkpoint::Source tensors_;
  bool modes_agree_ = true;
  int num_sequences_ = 0;
  double bf16_rms_error_ = 0;
  std::vector<std::string> layouts_;
  std::vector<int> sparse_layers_;
};

/// Every folder below tests/golden/families that has a golden.json, sorted.
std::vector<std::string> golden_folders();

}  // namespace switchyard::test
