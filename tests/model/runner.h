// SPDX-License-Identifier: Apache-2.0
// Runs one sequence through a Model in steps of a given size, over scrambled cache blocks, and
// keeps what it saw.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "model/model.h"

namespace switchyard::test {

/// What a run of one sequence gave.
struct RunOutput {
  std::vector<float> logits;                 ///< [T, V]
  std::vector<std::vector<float>> hidden;    ///< per block [T, D]
  std::vector<std::vector<int32_t>> expert;  ///< per MoE block [T, K]
  std::vector<std::vector<float>> weight;    ///< per MoE block [T, K]
};

class Runner {
 public:
  /// Loads with the config as given (a test may have changed it).
  static Result<std::unique_ptr<Runner>> load(const std::string& folder,
                                              const model::ModelConfig& config, DType dtype,
                                              int threads = 2, DeviceId device = {});

  /// All tokens of `ids`, `step` at a time (0: at once), from an empty cache.
  Result<RunOutput> run(const std::vector<int32_t>& ids, int step);
  /// The same in chunks of the given sizes, which add up to the length.
  Result<RunOutput> run_chunks(const std::vector<int32_t>& ids, const std::vector<int>& chunks);
  /// Greedy continuation, one token at a time after one prefill.
  Result<std::vector<int32_t>> greedy(const std::vector<int32_t>& ids, int count);

  model::Model& model() { return *model_; }

 private:
  static constexpr int kBlockTokens = 8, kMaxBlocks = 16, kMaxTokens = 64;

  explicit Runner(int threads) : pool_(PoolOptions{.num_threads = threads, .pin = false}) {}
  Result<std::vector<float>> step(const std::vector<int32_t>& ids, int begin, int end,
                                  RunOutput* output);

  Pool pool_;
  std::unique_ptr<model::Model> model_;
};

}  // namespace switchyard::test
