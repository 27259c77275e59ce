// SPDX-License-Identifier: Apache-2.0
// The model on a CUDA device: a straight list of launches on one stream, waited for once a step.
//
//   embed -> [ norm -> qkv -> heads -> attention -> out, added -> norm -> gate -> experts, added ] x L -> norm -> logits
//
// load.cpp makes it, layers.cpp queues the launches, model.cpp runs steps. Steps in which every sequence adds one token replay a
// graph, one per padded number of sequences, captured when it is first needed; and where the caller expects the next step to go on
// with the tokens of this one, it is queued before this one has ended (replay.cpp).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/step_head.h"
#include "kernels/cuda/step_persistent.h"
#include "model/cuda/buffers.h"
#include "model/cuda/picks.h"
#include "model/cuda/results.h"
#include "model/cuda/step_arrays.h"
#include "model/cuda/weights.h"
#include "model/devices.h"
#include "model/steps_ahead.h"

namespace switchyard::model::cuda {

class CudaModel final : public Model {
 public:
  CudaModel(const ModelConfig& config, const LoadOptions& options, Stream stream)
      : config_(config), options_(options), stream_(stream) {}
  ~CudaModel() override;

  Status load(const std::string& folder);

  const ModelConfig& config() const noexcept override { return config_; }
  const MemoryFacts& memory() const noexcept override { return memory_; }
  std::string_view expert_kernel() const noexcept override;
  bool can_pick() const noexcept override { return true; }
  Result<StepOutput> forward(const StepInput& input, RoutingObserver* observer) override;
  Result<TensorView> read_logits() override;
  AheadCounts steps_ahead() const noexcept override { return ahead_.counts(); }
  GuessCounts guesses() const noexcept override { return guesses_; }
  void set_hidden_probe(std::function<void(int, TensorView)> probe) override {
    hidden_probe_ = std::move(probe);
  }

 private:
  struct Step {
    StepShape shape;
    Picks::Asked asked;
    bool as_graph = false;
    bool persistent = false;   // a single launch for all layers
    bool advances = false;     // goes on from the step before, with what the device knows
    bool shows_picks = false;  // of experts, to an observer
    int rows = 0;              // whose logits are wanted, without padding

    int rows_with_padding() const { return as_graph ? static_cast<int>(shape.logit_rows) : rows; }
  };

  // load.cpp
  Status create_experts(int compute_capability);
  Status fill_weights(const std::string& folder);
  Status create_cache();
  Status create_buffers();
  Status choose_attention();
  void log_attention() const;

  // layers.cpp: queues everything between a step's arrays and its logits
  Status launch(const Step& plan);
  void run_attention(int layer, const StepShape& shape, const StepPointers& step);
  void run_qkv(int layer, const StepShape& shape, switchyard::cuda::PrepareHeads heads);
  Status run_ffn(int layer, const StepShape& shape);
  bool run_gate(int layer, const StepShape& shape);
  ExpertCall expert_call(int layer, const StepShape& shape) const;
  void run_split_gate(int layer, const switchyard::cuda::NormRoute& both);
  void run_gated_dense(int layer, const StepShape& shape, const float* weight_logits);
  Status run_experts(int layer, const StepShape& shape, bool routed);
  void run_head(const Step& plan, const StepPointers& step);
  switchyard::cuda::StepHead head_of(const Step& plan) const;
  bool runs_in_head(const switchyard::cuda::StepHead& head) const;
  void norm(const float* weight, const StepShape& shape, bool for_gates);
  void dense(const std::byte* x, const Matrix& matrix, int64_t tokens, float* y, bool add);
  switchyard::cuda::Dense normed_product(int layer, const StepShape& shape) const;
  bool norms_in_product(int layer, const StepShape& shape) const;
  Status show_hidden(int block, const StepShape& shape);

  // persistent.cpp: all layers of a step of one token as one launch, where the model and the device allow it
  Status prepare_persistent();
  Result<bool> turn_gates();
  switchyard::cuda::PersistentStep persistent_shape() const;
  std::string_view persistent_refusal() const;
  std::vector<switchyard::cuda::PersistentLayer> persistent_layers() const;
  bool runs_persistent(const StepInput& input, const StepShape& shape) const;
  void run_persistent(const StepPointers& step);
  const uint32_t* guess_counts() const;
  void count_guesses(uint32_t turn);

  // model.cpp
  Step plan(const StepInput& input, const RoutingObserver* observer);
  Result<StepOutput> run(const StepInput& input, RoutingObserver* observer);
  Status queue(const Step& step);
  void queue_choice(const Step& step);
  void queue_end(const Step& step);
  Status wait(const Step& step, uint32_t turn);
  void start_over();
  Result<TensorView> last_logits();
  int64_t num_picks(const StepShape& shape) const {  // entries of StepResults::expert
    return config_.num_moe_blocks() * shape.tokens * most_picks_;
  }
  void observe(const StepInput& input, const Step& step, uint32_t turn, RoutingObserver& observer);

  // replay.cpp
  bool can_replay(const StepInput& input, const StepShape& shape) const;
  Status replay(const Step& step);
  bool is_ahead(const StepInput& input, const Step& step) const;
  bool takes_ahead(const StepInput& input, const Step& step);
  bool wants_ahead(const StepInput& input, const Step& step);
  void go_ahead(const Step& step);
  void learn_time(const Step& step);
  Status repeat_last();

  CudaStreamHandle queue() const noexcept { return device_.handle(); }
  bool bf16() const noexcept { return options_.dtype == DType::bf16; }

  ModelConfig config_;
  LoadOptions options_;
  Stream stream_;
  MemoryFacts memory_;
  std::function<void(int, TensorView)> hidden_probe_;

  CudaStream device_;
  std::vector<Experts> experts_;  // of each block; unused where it is dense
  int64_t most_picks_ = 0;        // the largest K
  bool host_routes_ = false;      // in some block: its steps cannot be graphs
  std::vector<int> moe_layer_;    // of each block: how many MoE blocks come before it
  Weights weights_;
  CudaMemory cache_;
  int64_t cache_layer_bytes_ = 0;  // of k, or of v
  bool fast_attention_ = false;
  StepArrays arrays_;
  Buffers buffers_;
  HostResults host_results_;
  Results results_;
  Picks picks_;
  Step last_;                            // the step before, and
  uint32_t turn_ = 0;                    // its turn
  StepsAhead ahead_;                     // of the step after it
  bool captured_ = false;                // a graph was made in the step's time
  int64_t begun_ns_ = 0, ended_ns_ = 0;  // of the last step, as the host sees it
  switchyard::cuda::DenseProducts products_;
  std::map<int, CudaGraph> graphs_;  // see graph_key()
  CudaMemory head_workspace_;
  // Empty where it does not run. Gates are [D, E], and [E, D] for rows of the norm before attention.
  CudaMemory persistent_layers_, persistent_workspace_, persistent_gates_;
  std::byte* foresight_ = nullptr;  // in persistent_gates_, where picks are guessed
  GuessCounts guesses_;
  std::array<uint32_t, 2> seen_guesses_{};  // when last looked at
  bool rows_ready_ = false;                 // buffers_.rows holds the next block's normed rows
  std::vector<float> hidden_;               // [T, D] for the probe
};

/// What both the choice of kernels and their calls say about a layer's attention.
switchyard::cuda::Attend attend_shape(const attention::GqaSpec& spec, const LoadOptions& options);
switchyard::cuda::QkNormKind norm_kind(QkNorm norm);

}  // namespace switchyard::model::cuda
