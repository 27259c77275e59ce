// SPDX-License-Identifier: Apache-2.0
// What a CudaModel is made of: which kernels fit the model and the device, weights, the cache, and room for the largest step.
#include <algorithm>
#include <utility>

#include "attention/cache.h"
#include "base/environment.h"
#include "base/log.h"
#include "kernels/cuda/attention_entries.h"
#include "model/cuda/model.h"
#include "model/cuda/padding.h"
#include "model/tensor_map.h"

namespace switchyard::model {
namespace cuda {

namespace k = switchyard::cuda;

Status CudaModel::create_experts(int compute_capability) {
  int moe_layers = 0;
  for (const BlockSpec& block : config_.blocks) {
    moe_layer_.push_back(moe_layers);
    Experts experts;
    if (block.router) {
      SWITCHYARD_ASSIGN(
          experts, Experts::create(*block.router, config_.width, block.ffn_width, options_.dtype,
                                   options_.max_step_tokens, compute_capability));
      ++moe_layers;
      most_picks_ = std::max<int64_t>(most_picks_, experts.columns());
      if (const std::string_view why = experts.host_reason(); !why.empty() && !host_routes_) {
        log(LogLevel::warning,
            "router: {}: the host routes, which stops the device once a layer and keeps decode "
            "steps from being graphs (docs/routers.md)",
            why);
        host_routes_ = true;
      }
    }
    experts_.push_back(std::move(experts));
  }
  return {};
}

Status CudaModel::fill_weights(const std::string& folder) {
  std::vector<ExpertLayout> layout;
  for (const Experts& experts : experts_) layout.push_back(experts.layout());
  SWITCHYARD_ASSIGN(weights_,
                    allocate_weights(config_, options_.dtype, std::move(layout), device_));
  memory_.weights = weights_.memory.size();
  memory_.experts = weights_.expert_bytes;
  memory_.copies = weights_.copy_bytes;
  memory_.placed = weights_.placed_bytes;
  if (options_.random_weights)
    return make_weights(config_, options_.random_spread, weights_, device_);
  SWITCHYARD_ASSIGN(const checkpoint::Source source, checkpoint::open_checkpoint(folder));
  const Family* family = find_family_named(config_.family);
  SWITCHYARD_CHECK(family != nullptr, "no family is called '{}'", config_.family);
  std::vector<Fault> faults;
  const TensorMap map = TensorMap::build(*family, config_, source, faults);
  if (!faults.empty()) return summarize_faults(faults, folder);
  uint64_t done = 0;
  const WeightReader reader{source, map, stream_.pool(), [&](uint64_t bytes) {
                              done += bytes;
                              if (!options_.on_progress) return;
                              options_.on_progress("copying weights", static_cast<int64_t>(done),
                                                   static_cast<int64_t>(source.total_bytes()));
                            }};
  return upload_weights(reader, config_, weights_, device_);
}

k::Attend attend_shape(const attention::GqaSpec& spec, const LoadOptions& options) {
  return {.heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .block_tokens = options.block_tokens,
          .dtype = options.dtype,
          .window = spec.window,
          .scale = spec.scale};
}

// Whether the fast kernels take all blocks, else the plain one does.
bool takes_fast_attention(const ModelConfig& config, const LoadOptions& options) {
  bool fast = options.max_sequences <= k::kMaxDecodeSequences;
  for (const BlockSpec& block : config.blocks) {
    const attention::GqaSpec& a = block.attention;
    const int64_t rows = (options.num_kv_blocks + 1) * options.block_tokens * a.kv_heads;
    fast &= rows < (int64_t{1} << 31) && k::attend_fast_accepts(attend_shape(a, options));
  }
  return fast;
}

Status CudaModel::choose_attention() {
  fast_attention_ = takes_fast_attention(config_, options_);
  for (const BlockSpec& block : config_.blocks) {
    const attention::GqaSpec& a = block.attention;
    if (a.head_dim > k::kMaxPlainHeadDim) {
      return fail(Code::unsupported,
                  "attention heads of {} values cannot run on a CUDA device (at most {}): use "
                  "--device cpu",
                  a.head_dim, k::kMaxPlainHeadDim);
    }
  }
  return {};
}

// Says which kernels will run; the choice itself is made at each launch (kernels/cuda/attention.cu).
void CudaModel::log_attention() const {
  k::Attend attend = attend_shape(config_.blocks[0].attention, options_);
  attend.k_cache = cache_.data();
  attend.v_cache = cache_.data() + cache_layer_bytes_;
  const bool hopper = fast_attention_ && k::attend_sm90a_accepts(attend);
  if (fast_attention_ && !hopper && k::attend_is_sm90()) {
    log(LogLevel::warning,
        "attention: Hopper's kernels cannot be used, as the driver does not describe the KV cache "
        "to them: those of sm_80 run in their place, slower; update the driver");
  }
  log(LogLevel::info, "attention: using attention.cuda.{}",
      !fast_attention_ ? "plain"
      : hopper         ? "sm90a"
                       : "sm80");
}

// One block more than the scheduler knows: padding writes there. Never read, but zeroed, so that nothing ever reads garbage.
Status CudaModel::create_cache() {
  const attention::GqaSpec& a = config_.blocks[0].attention;
  const attention::CacheSpec spec{static_cast<int>(config_.blocks.size()),
                                  a.kv_heads,
                                  a.head_dim,
                                  options_.block_tokens,
                                  options_.dtype,
                                  options_.num_kv_blocks + 1};
  const int64_t bytes = spec.block_bytes() * spec.num_blocks;
  cache_layer_bytes_ = bytes / (2 * spec.layers);
  SWITCHYARD_ASSIGN(cache_, CudaMemory::allocate(bytes, "the key/value cache"));
  device_.fill(cache_.data(), 0, bytes);
  memory_.kv_cache = bytes;
  return {};
}

Status CudaModel::create_buffers() {
  const int64_t attention_bytes = cuda_attention_bytes(config_, options_);
  SWITCHYARD_ASSIGN(buffers_, Buffers::create(config_, options_, attention_bytes));
  device_.fill(buffers_.attention_workspace.data(), 0, attention_bytes);
  device_.fill(buffers_.head_words.data(), 0, buffers_.head_words.size());
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router) SWITCHYARD_TRY(experts_[l].reserve(buffers_.experts, device_));
  }
  SWITCHYARD_ASSIGN(host_results_, HostResults::create(config_, options_, buffers_));
  std::vector<k::LayerPicks> layers;
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router)
      layers.push_back({config_.blocks[l].router->num_experts, experts_[l].columns()});
  }
  SWITCHYARD_ASSIGN(results_, Results::create(layers, buffers_.logit_rows, device_));
  SWITCHYARD_ASSIGN(head_workspace_,
                    CudaMemory::allocate(k::step_head_workspace(), "the step's head"));
  device_.fill(head_workspace_.data(), 0, head_workspace_.size());
  SWITCHYARD_ASSIGN(picks_, Picks::create(options_.max_sequences, device_));
  SWITCHYARD_ASSIGN(arrays_, StepArrays::create(options_, config_, stream_, device_));
  memory_.arena = buffers_.bytes();
  return {};
}

Status CudaModel::load(const std::string& folder) {
  const int index = stream_.device().index;
  SWITCHYARD_ASSIGN(device_, CudaStream::open(index));
  SWITCHYARD_ASSIGN(const std::vector<DeviceFacts> devices, cuda_devices());
  const DeviceFacts& facts = devices[static_cast<size_t>(index)];
  constexpr int kOldest = 80;
  const int capability = facts.compute_major * 10 + facts.compute_minor;
  if (capability < kOldest) {
    return fail(Code::unsupported, "CUDA device {} ({}) is sm_{}: sm_{} or newer is needed", index,
                facts.name, capability, kOldest);
  }
  SWITCHYARD_TRY(choose_attention());
  SWITCHYARD_TRY(create_experts(capability));
  SWITCHYARD_TRY(fill_weights(folder));
  SWITCHYARD_TRY(create_cache());
  log_attention();
  SWITCHYARD_TRY(create_buffers());
  SWITCHYARD_TRY(prepare_persistent());
  std::string note;
  products_ = k::DenseProducts::open(deterministic(), note);
  if (!note.empty()) log(LogLevel::warning, "dense products of many tokens will be slow: {}", note);
  log(LogLevel::info, "loaded {} onto {} with {}{}", folder, facts.name, expert_kernel(),
      memory_.placed > 0 ? ", experts by the sides of the L2" : "");
  return device_.synchronize("load the model");
}

}  // namespace cuda

int64_t cuda_attention_bytes(const ModelConfig& config, const LoadOptions& options) {
  int64_t bytes = 256;
  if (!cuda::takes_fast_attention(config, options)) return bytes;
  for (const BlockSpec& block : config.blocks) {
    bytes = std::max(
        bytes, cuda::k::attend_workspace(cuda::attend_shape(block.attention, options),
                                         cuda::step_positions(options), options.max_sequences));
  }
  return bytes;
}

Result<std::unique_ptr<Model>> load_on_cuda(const std::string& folder, const ModelConfig& config,
                                            const LoadOptions& options, Stream stream) {
  auto model = std::make_unique<cuda::CudaModel>(config, options, stream);
  SWITCHYARD_TRY(model->load(folder));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace switchyard::model
