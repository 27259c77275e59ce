// SPDX-License-Identifier: Apache-2.0
// Model: weights bound to kernels, and the forward pass. The only thing the engine needs to know.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "model/config.h"
#include "model/step.h"

namespace switchyard::model {

struct LoadOptions {
  DType dtype = DType::bf16;      ///< f32 or bf16
  int64_t max_step_tokens = 512;  ///< most T of a step
  int max_sequences = 16;         ///< most B of a step, and most N
  int block_tokens = 16;          ///< P
  int64_t num_kv_blocks = 0;      ///< blocks of the paged cache
  int max_blocks_per_sequence = 0;
  /// stage, bytes done, bytes in all
  std::function<void(const char*, int64_t, int64_t)> on_progress;
};

struct MemoryFacts {
  int64_t weights = 0, experts = 0, kv_cache = 0,
          arena = 0;  ///< bytes; experts are part of weights
};

class Model {
 public:
  /// Reads config.json of the folder and decides the family. Touches no weights.
  static Result<ModelConfig> read_config(const std::string& folder);
  /// Bytes that one KV block takes over all layers.
  static int64_t kv_block_bytes(const ModelConfig& config, int block_tokens, DType dtype);

  /// `config` is what read_config gave for the folder; weights that do not fit it are refused.
  static Result<std::unique_ptr<Model>> load(const std::string& folder, const ModelConfig& config,
                                             const LoadOptions& options, Stream stream);
  ~Model();

  const ModelConfig& config() const noexcept;
  const MemoryFacts& memory() const noexcept;
  /// Name of the grouped GEMM that runs the experts; of the first dense layer when there are none.
  std::string_view expert_kernel() const noexcept;

  /// One step. Errors: Code::internal for non-finite logits is not decided here (the engine checks
  /// rows).
  Result<StepOutput> forward(const StepInput& input, RoutingObserver* observer = nullptr);
  /// Copies the residual stream after each block ([T, D] f32 per block) during the next forwards;
  /// for tests.
  void set_hidden_probe(std::function<void(int block, TensorView hidden)> probe);
  /// Rebalancing and prefetch will live here; never inside a step.
  void between_steps() {}

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard::model
