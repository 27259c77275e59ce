// SPDX-License-Identifier: Apache-2.0
// A decode step of one token as a single launch for all layers (kernels/cuda/step_persistent.h): whether the model allows it, and
// the table of layers that the kernel reads.
#include <tuple>

#include "base/environment.h"
#include "base/log.h"
#include "kernels/ops/moe_pack.h"
#include "model/cuda/model.h"

namespace switchyard::model::cuda {

namespace k = switchyard::cuda;

namespace {

// In front of the kernel's own memory.
constexpr int64_t kGuessCountBytes = 256;

bool same_rule(const RouteRule& a, const RouteRule& b) {
  const auto all = [](const RouteRule& r) {
    return std::tie(r.experts, r.top_k, r.score, r.weigh, r.group_score, r.num_groups, r.top_groups,
                    r.epsilon, r.scale, r.minimum, r.norm_order);
  };
  return all(a) == all(b);
}

}  // namespace

// What does not depend on the step, and is the same for every layer.
k::PersistentStep CudaModel::persistent_shape() const {
  const attention::GqaSpec& a = config_.blocks[0].attention;
  return {.layers = static_cast<int>(config_.blocks.size()),
          .width = config_.width,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim,
          .block_tokens = options_.block_tokens,
          .qk_norm = norm_kind(a.qk_norm),
          .clip = a.clip,
          .attention_scale = a.scale,
          .eps = config_.norm_eps,
          .residual_scale = config_.residual_scale,
          .experts = experts_[0].problem(),
          .sides = weights_.memory.sides(),
          .weights = weights_.memory.data(),
          .weight_bytes = weights_.memory.size()};
}

// Why steps of one token are launches of their own; empty when they are not.
std::string_view CudaModel::persistent_refusal() const {
  if (environment("SWITCHYARD_PERSISTENT") == "0") return "SWITCHYARD_PERSISTENT is 0";
  if (!bf16() || !fast_attention_) return "it is for bf16, and for attention with a fast kernel";
  if (deterministic()) return "its bits are not those of steps of more tokens";
  const BlockSpec& first = config_.blocks[0];
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    const BlockSpec& block = config_.blocks[l];
    if (!block.router || block.shared.width > 0) return "it is for blocks of routed experts alone";
    if (block.ffn_width != first.ffn_width || block.attention != first.attention ||
        !same_rule(experts_[l].problem().rule, experts_[0].problem().rule)) {
      return "its blocks differ";
    }
    if (block.router->selection_bias || !experts_[l].host_reason().empty()) {
      return "its router is not one for the device alone";
    }
    if (weights_.layout[l] != ExpertLayout::packed || experts_[l].pinned()) {
      return "its experts have a kernel of their own";
    }
  }
  if (first.attention.window > 0) return "its attention has a window";
  if (config_.rope.rotary_dim != first.attention.head_dim) return "its rope turns parts of heads";
  const char* why = k::persistent_refusal(persistent_shape());
  return why != nullptr ? std::string_view(why) : std::string_view();
}

std::vector<k::PersistentLayer> CudaModel::persistent_layers() const {
  constexpr StepShape kOne{1, 1, 1};
  const StepResults results(buffers_.results, buffers_.logit_rows, num_picks(kOne));
  std::vector<k::PersistentLayer> layers;
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    const BlockWeights& w = weights_.blocks[l];
    std::byte* k_cache = cache_.data() + 2 * static_cast<int64_t>(l) * cache_layer_bytes_;
    const int64_t first = moe_layer_[l] * most_picks_;
    layers.push_back(
        {.attention_norm = w.attention_norm,
         .ffn_norm = w.ffn_norm,
         .q_norm = w.q_norm,
         .k_norm = w.k_norm,
         .qkv = w.qkv.data,
         .qkv_bias = w.qkv.bias,
         .output = w.output.data,
         .output_bias = w.output.bias,
         .gate = persistent_gates_.as<float>() + static_cast<int64_t>(l) * w.gate.n * w.gate.k,
         .foresight = foresight_ == nullptr ? nullptr : foresight_ + l * w.gate.n * w.gate.k * 2,
         .w13 = w.experts_gate_up,
         .w2 = w.experts_down,
         .k_cache = k_cache,
         .v_cache = k_cache + cache_layer_bytes_,
         .expert = results.expert + first,
         .weight = results.weight + first});
  }
  return layers;
}

// All blocks have a gate of the same size. False: there is no room, so steps go layer by layer.
Result<bool> CudaModel::turn_gates() {
  const Matrix& first = weights_.blocks[0].gate;
  const int64_t count = first.n * first.k, all = std::ssize(weights_.blocks) * count;
  const int64_t guess_bytes = k::persistent_guesses(persistent_shape()) ? all * 2 : 0;
  auto gates = CudaMemory::allocate(all * 4 + guess_bytes, "gates of steps of one token");
  if (!gates.ok()) {
    log(LogLevel::warning, "steps of one token are launches layer by layer: {}",
        gates.error().message);
    return false;
  }
  persistent_gates_ = *std::move(gates);
  if (guess_bytes > 0) foresight_ = persistent_gates_.data() + all * 4;
  memory_.weights += persistent_gates_.size();
  memory_.copies += persistent_gates_.size();
  for (int64_t l = 0; l < std::ssize(weights_.blocks); ++l) {
    const BlockWeights& w = weights_.blocks[l];
    const auto* gate = reinterpret_cast<const float*>(w.gate.data);
    gate_by_input_on_device(gate, first.n, first.k, persistent_gates_.as<float>() + l * count,
                            queue());
    if (foresight_ == nullptr) continue;
    gate_of_other_norm_on_device(gate, w.ffn_norm, w.attention_norm, first.n, first.k,
                                 foresight_ + l * count * 2, queue());
  }
  return true;
}

Status CudaModel::prepare_persistent() {
  if (const std::string_view why = persistent_refusal(); !why.empty()) {
    log(LogLevel::debug, "steps of one token are launches layer by layer: {}", why);
    return {};
  }
  SWITCHYARD_ASSIGN(const bool there, turn_gates());
  if (!there) return {};
  const std::vector<k::PersistentLayer> layers = persistent_layers();
  const auto bytes = static_cast<int64_t>(layers.size() * sizeof(layers[0]));
  const int64_t workspace = k::persistent_workspace(persistent_shape()) + kGuessCountBytes;
  SWITCHYARD_ASSIGN(persistent_layers_, CudaMemory::allocate(bytes, "the table of layers"));
  SWITCHYARD_ASSIGN(persistent_workspace_,
                    CudaMemory::allocate(workspace, "the persistent step's activations"));
  memory_.arena += bytes + workspace;
  device_.fill(persistent_workspace_.data(), 0, workspace);
  device_.copy_in(persistent_layers_.data(), layers.data(), bytes);
  return device_.synchronize("prepare the persistent step");
}

const uint32_t* CudaModel::guess_counts() const { return persistent_workspace_.as<uint32_t>(); }

// Counts on the device go round at 2^32.
void CudaModel::count_guesses(uint32_t turn) {
  if (guess_counts() == nullptr) return;
  const std::array<uint32_t, 2> seen = results_.guesses(turn);
  guesses_.right += seen[0] - seen_guesses_[0];
  guesses_.wrong += seen[1] - seen_guesses_[1];
  seen_guesses_ = seen;
}

// Probes see every layer's result, which this keeps to itself. Over many positions the attention of its own launch is faster: with
// Qwen3-30B-A3B 8000 of them take 3 % less layer by layer (bench/results/notes-gpu-step.md).
bool CudaModel::runs_persistent(const StepInput& input, const StepShape& shape) const {
  constexpr int kMostPositions = 4096;
  return persistent_workspace_.data() != nullptr && shape.tokens == 1 && !hidden_probe_ &&
         input.context_len.as<int32_t>()[0] < kMostPositions;
}

void CudaModel::run_persistent(const StepPointers& step) {
  k::PersistentStep args = persistent_shape();
  args.layer = persistent_layers_.as<k::PersistentLayer>();
  args.cos = step.cos;
  args.sin = step.sin;
  args.rope_row = step.rope_row;
  args.slot = step.slot;
  args.context_len = step.context_len;
  args.block_table = step.block_table;
  args.x = buffers_.x;
  args.workspace = persistent_workspace_.data() + kGuessCountBytes;
  args.guesses = persistent_workspace_.as<uint32_t>();
  k::run_persistent(args, queue());
}

}  // namespace switchyard::model::cuda
