// SPDX-License-Identifier: Apache-2.0
// TensorMap: every tensor of a checkpoint in its role. A tensor that nobody expects, that is there
// twice, is missing or has the wrong shape is a fault: a model is never run with weights left over
// or unfilled.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"
#include "model/config.h"
#include "model/family.h"

namespace switchyard::model {

/// One finding about a checkpoint.
struct Fault {
  std::string fault_class;  ///< "config", "unexpected_tensor", "missing_tensor",
                            ///< "duplicate_tensor", "wrong_shape", ...
  Error error;
};

/// A tensor's place in the model; -1 where a role has no layer or expert.
struct TensorPlace {
  TensorRole role;
  int layer = -1, expert = -1;
  // clang-tidy 14 takes the 0 that a defaulted comparison is rewritten with for a null pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const TensorPlace&, const TensorPlace&) = default;
};

/// Matches a name against a pattern with {L} and {E}; nothing when it does not fit.
std::optional<TensorPlace> match_name(const TensorName& pattern, std::string_view name);

/// The shape that a role must have, or nothing when the config has no such tensor in that layer.
std::optional<Shape> expected_shape(const ModelConfig& config, const TensorPlace& place);

class TensorMap {
 public:
  /// Sorts every tensor into its place; faults are appended (empty means that the checkpoint is
  /// whole).
  static TensorMap build(const Family& family, const ModelConfig& config,
                         const checkpoint::Source& source, std::vector<Fault>& faults);

  const checkpoint::TensorEntry* find(TensorRole role, int layer = -1, int expert = -1) const;
  /// A tensor that build() found to be there (checked).
  const checkpoint::TensorEntry& at(TensorRole role, int layer = -1, int expert = -1) const;

 private:
  void place(const Family& family, const ModelConfig& config, const checkpoint::TensorEntry& entry,
             const checkpoint::Source& source, std::vector<Fault>& faults);
  void require(const Family& family, const TensorPlace& place, std::vector<Fault>& faults) const;
  void require_block(const Family& family, const ModelConfig& config, int layer,
                     std::vector<Fault>& faults) const;
  void require_experts(const Family& family, const ModelConfig& config, int layer,
                       std::vector<Fault>& faults) const;

  std::map<TensorPlace, const checkpoint::TensorEntry*> entries_;
};

/// One error for a checkpoint with faults: the first, and how many more there are.
Error summarize_faults(const std::vector<Fault>& faults, const std::string& folder);

}  // namespace switchyard::model
