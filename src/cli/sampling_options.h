// SPDX-License-Identifier: Apache-2.0
// Sampling on the command line: what the user says goes over what the model's own files say.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/request.h"

namespace CLI {
class App;
}

namespace switchyard::cli {

class SamplingOptions {
 public:
  void declare(CLI::App& app);
  /// The defaults, changed by what was given.
  SamplingParams apply(SamplingParams defaults) const;

 private:
  std::optional<int> max_tokens_, min_tokens_, top_k_;
  std::optional<float> temperature_, top_p_, min_p_, repetition_, presence_, frequency_;
  std::optional<uint64_t> seed_;
  std::vector<std::string> stop_;
  bool greedy_ = false, ignore_eos_ = false;
};

}  // namespace switchyard::cli
