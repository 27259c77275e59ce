// SPDX-License-Identifier: Apache-2.0
// Model: weights bound to kernels on one device, and the forward pass. The only thing the engine needs to know.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
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
  bool random_weights = false;  ///< no folder: weights are made in place, for measurements
  float random_spread = 0;      ///< deviations between the experts' mean logits, then
  /// stage, bytes done, bytes in all
  std::function<void(const char*, int64_t, int64_t)> on_progress;
};

struct MemoryFacts {
  /// In bytes. Experts are part of weights, and so are copies: weights that are there in another form, too, so that no step reads both.
  int64_t weights = 0, experts = 0, copies = 0, kv_cache = 0, arena = 0;
  int64_t placed = 0;  ///< of the experts: those that lie by the sides of a device's L2
};

class Model {
 public:
  /// Reads config.json of the folder and decides the family. Touches no weights.
  static Result<ModelConfig> read_config(const std::string& folder);
  /// The same for the content of a config.json, an object.
  static Result<ModelConfig> read_config_json(const Json& json);
  /// Bytes that one KV block takes over all layers.
  static int64_t kv_block_bytes(const ModelConfig& config, int block_tokens, DType dtype);

  /// Loads onto the device of `stream`. `config` is what read_config gave for the folder; weights that do not fit it are
  /// refused. Errors: Code::unsupported and Code::unavailable, when the device cannot do what the model asks for.
  static Result<std::unique_ptr<Model>> load(const std::string& folder, const ModelConfig& config,
                                             const LoadOptions& options, Stream stream);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const noexcept = 0;
  virtual const MemoryFacts& memory() const noexcept = 0;
  /// Name of the kernel that runs the experts; of the first dense layer when there are none.
  virtual std::string_view expert_kernel() const noexcept = 0;

  /// Whether forward() obeys StepInput::sample; it may still give logits, when a step asks for more than it has room for.
  virtual bool can_pick() const noexcept { return false; }
  /// The logits of the last forward, which gave picks; penalties and masks are applied.
  virtual Result<TensorView> read_logits() {
    return fail(Code::internal, "this model gives its logits with each step");
  }
  /// One step. The logits are in host memory. Errors: Code::device; non-finite logits are the engine's to see.
  virtual Result<StepOutput> forward(const StepInput& input,
                                     RoutingObserver* observer = nullptr) = 0;
  /// What became of the steps that StepInput::goes_on_unless allowed; none where a device never goes ahead.
  virtual AheadCounts steps_ahead() const noexcept { return {}; }
  /// Of picks that a device guesses ahead of the router; none where it does not.
  virtual GuessCounts guesses() const noexcept { return {}; }
  /// Copies the residual stream after each block ([T, D] f32 per block) during the next forwards;
  /// for tests.
  virtual void set_hidden_probe(std::function<void(int block, TensorView hidden)> probe) = 0;
  /// Rebalancing and prefetch will live here; never inside a step.
  virtual void between_steps() {}

 protected:
  Model() = default;
};

}  // namespace switchyard::model
