// SPDX-License-Identifier: Apache-2.0
// The model on a CUDA device: a straight list of launches on one stream, and one synchronisation a step.
//
//   embed -> [ norm -> qkv -> heads -> attention -> out, added -> norm -> gate -> experts, added ] x L -> norm -> logits
//
// Steps in which every sequence adds one token replay a graph, one per padded number of sequences, captured when it is first
// needed. The experts' kernel may write the next block's normed rows itself. Logits and picks come back to pinned memory.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "attention/cache.h"
#include "base/environment.h"
#include "base/log.h"
#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/step.h"
#include "model/cuda/buffers.h"
#include "model/cuda/step_arrays.h"
#include "model/cuda/weights.h"
#include "model/devices.h"
#include "model/tensor_map.h"

namespace switchyard::model {
namespace cuda {
namespace {

namespace k = switchyard::cuda;

// Graphs exist for these numbers of sequences: all small ones, then few.
constexpr std::array kPaddedSequences = {1,  2,  3,  4,  5,  6,  7,  8,   12,  16,  20,  24,  28,
                                         32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256};

class CudaModel final : public Model {
 public:
  CudaModel(const ModelConfig& config, const LoadOptions& options, Stream stream)
      : config_(config), options_(options), stream_(stream) {}

  Status load(const std::string& folder);

  const ModelConfig& config() const noexcept override { return config_; }
  const MemoryFacts& memory() const noexcept override { return memory_; }
  std::string_view expert_kernel() const noexcept override;
  Result<StepOutput> forward(const StepInput& input, RoutingObserver* observer) override;
  void set_hidden_probe(std::function<void(int, TensorView)> probe) override {
    hidden_probe_ = std::move(probe);
  }

 private:
  Status create_experts(int compute_capability);
  Status fill_weights(const std::string& folder);
  Status create_cache();
  Status create_buffers();
  Status choose_attention();

  StepShape shape_of(const StepInput& input) const;
  bool can_replay(const StepInput& input, const StepShape& shape) const;
  Status replay(const StepShape& shape);
  Status launch(const StepShape& shape);
  Status show_hidden(int block, const StepShape& shape);
  void run_attention(int layer, const StepShape& shape, const StepPointers& step);
  Status run_ffn(int layer, const StepShape& shape);
  void run_gate(int layer, const StepShape& shape);
  void run_gated_dense(int layer, const StepShape& shape, const float* weight_logits);
  Status run_experts(int layer, const StepShape& shape);
  void run_head(const StepShape& shape, const StepPointers& step);
  void norm(const float* weight, const StepShape& shape, bool for_gates);
  void dense(const std::byte* x, const Matrix& matrix, int64_t tokens, float* y, bool add);
  void observe(const StepInput& input, const StepShape& shape, RoutingObserver& observer);

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
  HostResults results_;
  k::DenseProducts products_;
  std::map<int, CudaGraph> graphs_;
  bool rows_ready_ = false;    // buffers_.rows holds the next block's normed rows
  std::vector<int32_t> load_;  // [E] picks of a layer, for the observer
  std::vector<float> hidden_;  // [T, D] for the probe
};

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
      load_.resize(std::max<size_t>(load_.size(), static_cast<size_t>(block.router->num_experts)));
    }
    experts_.push_back(std::move(experts));
  }
  return {};
}

Status CudaModel::fill_weights(const std::string& folder) {
  std::vector<ExpertLayout> layout;
  for (const Experts& experts : experts_) layout.push_back(experts.layout());
  SWITCHYARD_ASSIGN(weights_, allocate_weights(config_, options_.dtype, std::move(layout)));
  memory_.weights = weights_.memory.size();
  memory_.experts = weights_.expert_bytes;
  if (options_.random_weights) return make_weights(config_, weights_, device_);
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

Status CudaModel::choose_attention() {
  fast_attention_ = options_.max_sequences <= k::kMaxDecodeSequences;
  for (const BlockSpec& block : config_.blocks) {
    const attention::GqaSpec& a = block.attention;
    const int64_t rows = (options_.num_kv_blocks + 1) * options_.block_tokens * a.kv_heads;
    fast_attention_ &= rows < (int64_t{1} << 31);
    fast_attention_ &= k::attend_fast_accepts(attend_shape(a, options_));
    if (a.head_dim > k::kMaxPlainHeadDim) {
      return fail(Code::unsupported,
                  "attention heads of {} values cannot run on a CUDA device (at most {}): use "
                  "--device cpu",
                  a.head_dim, k::kMaxPlainHeadDim);
    }
  }
  log(LogLevel::info, "attention: using attention.cuda.{}", fast_attention_ ? "mma" : "plain");
  return {};
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

// Sequences that a graph may have beyond those of the step; they repeat the first one, with all its positions.
int64_t most_padding(const LoadOptions& options) {
  const auto limit = std::min<int64_t>(options.max_sequences, options.max_step_tokens);
  int most = 0;
  for (size_t i = 1; i < kPaddedSequences.size() && kPaddedSequences[i] <= limit; ++i) {
    most = std::max(most, kPaddedSequences[i] - kPaddedSequences[i - 1] - 1);
  }
  return most;
}

// Positions that the sequences of a step can have together.
int64_t step_positions(const LoadOptions& options) {
  const int64_t blocks = std::min<int64_t>(options.num_kv_blocks, options.max_blocks_per_sequence);
  return (options.num_kv_blocks + most_padding(options) * blocks) * options.block_tokens;
}

Status CudaModel::create_buffers() {
  int64_t attention_bytes = 256;
  for (const BlockSpec& block : config_.blocks) {
    if (!fast_attention_) break;
    attention_bytes = std::max(
        attention_bytes, k::attend_workspace(attend_shape(block.attention, options_),
                                             step_positions(options_), options_.max_sequences));
  }
  SWITCHYARD_ASSIGN(buffers_, Buffers::create(config_, options_, attention_bytes));
  device_.fill(buffers_.attention_workspace.data(), 0, attention_bytes);
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router) SWITCHYARD_TRY(experts_[l].reserve(buffers_.experts, device_));
  }
  SWITCHYARD_ASSIGN(results_, HostResults::create(config_, options_, buffers_));
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
  SWITCHYARD_TRY(create_buffers());
  std::string note;
  products_ = k::DenseProducts::open(deterministic(), note);
  if (!note.empty()) log(LogLevel::warning, "dense products of many tokens will be slow: {}", note);
  log(LogLevel::info, "loaded {} onto {} with {}", folder, facts.name, expert_kernel());
  return device_.synchronize("load the model");
}

std::string_view CudaModel::expert_kernel() const noexcept {
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router) return experts_[l].name();
  }
  return "dense.cuda";
}

void CudaModel::dense(const std::byte* x, const Matrix& matrix, int64_t tokens, float* y,
                      bool add) {
  products_.run({.x = x,
                 .weight = matrix.data,
                 .bias = matrix.bias,
                 .dtype = options_.dtype,
                 .tokens = tokens,
                 .n = matrix.n,
                 .k = matrix.k,
                 .alpha = add ? config_.residual_scale : 1.0f,
                 .accumulate = add,
                 .y = y},
                queue());
}

// buffers_.rows from the residual stream; for gates in f32 as well.
void CudaModel::norm(const float* weight, const StepShape& shape, bool for_gates) {
  k::NormRows args{.x = buffers_.x,
                   .weight = weight,
                   .tokens = shape.tokens,
                   .width = config_.width,
                   .eps = config_.norm_eps};
  if (bf16()) {
    args.y_bf16 = buffers_.rows;
    args.y_f32 = for_gates ? buffers_.normed : nullptr;
  } else {
    args.y_f32 = reinterpret_cast<float*>(buffers_.rows);
  }
  k::norm_rows(args, queue());
}

k::QkNormKind norm_kind(QkNorm norm) {
  return norm == QkNorm::per_head     ? k::QkNormKind::per_head
         : norm == QkNorm::full_width ? k::QkNormKind::full_width
                                      : k::QkNormKind::none;
}

void CudaModel::run_attention(int layer, const StepShape& shape, const StepPointers& step) {
  const attention::GqaSpec& spec = config_.blocks[layer].attention;
  const BlockWeights& w = weights_.blocks[layer];
  std::byte* k_cache = cache_.data() + 2 * layer * cache_layer_bytes_;
  std::byte* v_cache = k_cache + cache_layer_bytes_;
  if (!rows_ready_) norm(w.attention_norm, shape, false);
  dense(buffers_.rows, w.qkv, shape.tokens, buffers_.qkv, false);
  k::prepare_heads({.heads = spec.heads,
                    .kv_heads = spec.kv_heads,
                    .head_dim = spec.head_dim,
                    .rotary_dim = config_.rope.rotary_dim,
                    .norm = norm_kind(spec.qk_norm),
                    .eps = config_.norm_eps,
                    .clip = spec.clip,
                    .block_tokens = options_.block_tokens,
                    .dtype = options_.dtype,
                    .qkv = buffers_.qkv,
                    .q_norm = w.q_norm,
                    .k_norm = w.k_norm,
                    .cos = step.cos,
                    .sin = step.sin,
                    .rope_row = step.rope_row,
                    .slot = step.slot,
                    .q = buffers_.q,
                    .k_cache = k_cache,
                    .v_cache = v_cache,
                    .tokens = shape.tokens},
                   queue());
  k::Attend attend = attend_shape(spec, options_);
  attend.q = buffers_.q;
  attend.k_cache = k_cache;
  attend.v_cache = v_cache;
  attend.seq_offset = step.seq_offset;
  attend.context_len = step.context_len;
  attend.block_table = step.block_table;
  attend.max_blocks = step.max_blocks;
  attend.sequences = shape.sequences;
  attend.tokens = shape.tokens;
  attend.out = buffers_.mixed;
  attend.workspace = buffers_.attention_workspace.data();
  if (!fast_attention_) {
    k::attend_plain(attend, queue());
  } else {
    k::attend_decode(attend, queue());
    if (shape.tokens > shape.sequences) k::attend_prefill(attend, queue());
  }
  dense(buffers_.mixed, w.output, shape.tokens, buffers_.x, true);
}

// The norm before the experts, and their gate's logits.
void CudaModel::run_gate(int layer, const StepShape& shape) {
  const BlockWeights& w = weights_.blocks[layer];
  const int experts = config_.blocks[layer].router->num_experts;
  const float* normed = bf16() ? buffers_.normed : reinterpret_cast<float*>(buffers_.rows);
  const k::NormRoute both{
      .norm = {.x = buffers_.x,
               .weight = w.ffn_norm,
               .tokens = shape.tokens,
               .width = config_.width,
               .eps = config_.norm_eps,
               .y_f32 = w.shared_gate.data != nullptr ? buffers_.normed : nullptr,
               .y_bf16 = buffers_.rows},
      .gate = reinterpret_cast<float*>(w.gate.data),
      .num_experts = experts,
      .logits = buffers_.gate};
  if (bf16() && k::norm_route_accepts(both) && !deterministic()) {
    k::norm_route(both, queue());
    return;
  }
  norm(w.ffn_norm, shape, true);
  products_.run({.x = normed,
                 .weight = w.gate.data,
                 .dtype = DType::f32,
                 .tokens = shape.tokens,
                 .n = experts,
                 .k = config_.width,
                 .y = buffers_.gate},
                queue());
}

// x += down(silu(gate) * up): a dense layer's, or the shared experts', then weighted by a sigmoid.
void CudaModel::run_gated_dense(int layer, const StepShape& shape, const float* weight_logits) {
  const BlockWeights& w = weights_.blocks[layer];
  dense(buffers_.rows, w.gate_up, shape.tokens, buffers_.wide, false);
  k::swiglu({.gate_up = buffers_.wide,
             .weight = weight_logits,
             .tokens = shape.tokens,
             .ffn_width = w.down.k,
             .dtype = options_.dtype,
             .h = buffers_.hidden},
            queue());
  dense(buffers_.hidden, w.down, shape.tokens, buffers_.x, true);
}

Status CudaModel::run_experts(int layer, const StepShape& shape) {
  const auto at = static_cast<size_t>(layer);
  const int64_t first = moe_layer_[at] * shape.tokens * most_picks_;
  ExpertCall call{.x = buffers_.rows,
                  .logits = buffers_.gate,
                  .tokens = shape.tokens,
                  .expert = buffers_.expert + first,
                  .weight = buffers_.weight + first,
                  .scale = config_.residual_scale,
                  .y = buffers_.x,
                  .layer = layer};
  rows_ready_ = experts_[at].writes_next() && at + 1 < weights_.blocks.size();
  if (rows_ready_) {
    call.next_norm = weights_.blocks[at + 1].attention_norm;
    call.next_epsilon = config_.norm_eps;
    call.next_x = buffers_.next_rows;
  }
  SWITCHYARD_TRY(experts_[at].run(weights_.blocks[at], call, buffers_.experts, device_, stream_));
  if (rows_ready_) std::swap(buffers_.rows, buffers_.next_rows);
  return {};
}

Status CudaModel::run_ffn(int layer, const StepShape& shape) {
  const BlockWeights& w = weights_.blocks[layer];
  const BlockSpec& spec = config_.blocks[layer];
  rows_ready_ = false;
  if (!spec.router) {
    norm(w.ffn_norm, shape, false);
    run_gated_dense(layer, shape, nullptr);
    return {};
  }
  run_gate(layer, shape);
  if (spec.shared.width > 0) {
    const float* normed = bf16() ? buffers_.normed : reinterpret_cast<float*>(buffers_.rows);
    if (spec.shared.gated) {
      k::dense_plain({.x = normed,
                      .weight = w.shared_gate.data,
                      .dtype = DType::f32,
                      .tokens = shape.tokens,
                      .n = 1,
                      .k = config_.width,
                      .y = buffers_.shared_weight},
                     queue());
    }
    run_gated_dense(layer, shape, spec.shared.gated ? buffers_.shared_weight : nullptr);
  }
  return run_experts(layer, shape);
}

void CudaModel::run_head(const StepShape& shape, const StepPointers& step) {
  k::NormRows args{.x = buffers_.x,
                   .row = step.logit_row,
                   .weight = weights_.final_norm,
                   .tokens = shape.logit_rows,
                   .width = config_.width,
                   .eps = config_.norm_eps};
  if (bf16()) {
    args.y_bf16 = buffers_.head_rows;
  } else {
    args.y_f32 = reinterpret_cast<float*>(buffers_.head_rows);
  }
  k::norm_rows(args, queue());
  products_.run({.x = buffers_.head_rows,
                 .weight = weights_.lm_head.data,
                 .dtype = options_.dtype,
                 .tokens = shape.logit_rows,
                 .n = config_.vocab,
                 .k = config_.width,
                 .alpha = config_.logit_scale,
                 .y = buffers_.logits},
                queue());
}

Status CudaModel::show_hidden(int block, const StepShape& shape) {
  if (!hidden_probe_) return {};
  hidden_.resize(static_cast<size_t>(shape.tokens * config_.width));
  device_.copy_out(hidden_.data(), buffers_.x, std::ssize(hidden_) * 4);
  SWITCHYARD_TRY(device_.synchronize("read a block's result"));
  hidden_probe_(block, TensorView::of(hidden_.data(), {shape.tokens, config_.width}));
  return {};
}

// Everything between a step's arrays and its logits.
Status CudaModel::launch(const StepShape& shape) {
  const StepPointers step = arrays_.pointers(shape);
  k::embed({.token = step.token,
            .table = weights_.embedding.data,
            .dtype = options_.dtype,
            .tokens = shape.tokens,
            .width = config_.width,
            .scale = config_.embedding_scale,
            .x = buffers_.x},
           queue());
  rows_ready_ = false;
  for (int l = 0; l < std::ssize(config_.blocks); ++l) {
    run_attention(l, shape, step);
    SWITCHYARD_TRY(run_ffn(l, shape));
    SWITCHYARD_TRY(show_hidden(l, shape));
  }
  run_head(shape, step);
  return {};
}

StepShape CudaModel::shape_of(const StepInput& input) const {
  return {input.token.shape[0], static_cast<int>(input.context_len.shape[0]),
          input.logit_row.shape[0]};
}

// A graph stands for steps in which row t is sequence t's only token and wants its logits.
bool CudaModel::can_replay(const StepInput& input, const StepShape& shape) const {
  return input.decode_only && !hidden_probe_ && !host_routes_ && shape.tokens == shape.sequences &&
         shape.logit_rows == shape.sequences && shape.sequences <= kPaddedSequences.back() &&
         config_.rope.scaling != attention::RopeSpec::Scaling::dynamic;
}

// The next larger number of sequences that has a graph, within what the buffers hold.
int padded(int sequences, const LoadOptions& options) {
  const int wanted = *std::ranges::lower_bound(kPaddedSequences, sequences);
  const auto most = std::min<int64_t>(options.max_sequences, options.max_step_tokens);
  return wanted <= most ? wanted : sequences;
}

Status CudaModel::replay(const StepShape& shape) {
  CudaGraph& graph = graphs_[shape.sequences];
  if (!graph) {
    // Outside the capture first: kernels raise their limits and the library chooses its algorithms then.
    SWITCHYARD_TRY(launch(shape));
    SWITCHYARD_TRY(device_.synchronize("prepare a graph"));
    SWITCHYARD_TRY(device_.begin_capture());
    const Status launched = launch(shape);
    Result<CudaGraph> captured = device_.end_capture();
    SWITCHYARD_TRY(launched);
    SWITCHYARD_ASSIGN(graph, std::move(captured));
    log(LogLevel::debug, "captured a decode step of {} sequences", shape.sequences);
  }
  device_.replay(graph);
  return {};
}

// Rows that could not be scored have experts 0 ... K-1 with weights of 0.
bool unusable_row(const int32_t* expert, const float* weight, int64_t top_k) {
  for (int64_t k = 0; k < top_k; ++k) {
    if (expert[k] != k || weight[k] != 0) return false;
  }
  return true;
}

// Padding behind the step's own tokens is not shown.
void CudaModel::observe(const StepInput& input, const StepShape& shape, RoutingObserver& observer) {
  const int64_t tokens = input.token.shape[0];
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    const std::optional<RouterSpec>& router = config_.blocks[l].router;
    if (!router) continue;
    const int64_t top_k = experts_[l].columns(), first = moe_layer_[l] * shape.tokens * most_picks_;
    int32_t* expert = results_.expert.as<int32_t>() + first;
    float* weight = results_.weight.as<float>() + first;
    if (const HostLoads* known = experts_[l].host_loads(); known != nullptr) {
      observer.on_routing(moe_layer_[l],
                          {.expert = TensorView::of(expert, {tokens, top_k}),
                           .weight = TensorView::of(weight, {tokens, top_k}),
                           .load = TensorView::of(known->load.data(), {router->num_experts}),
                           .demand = TensorView::of(known->demand.data(), {router->num_experts}),
                           .counts = known->counts});
      continue;
    }
    std::fill_n(load_.begin(), router->num_experts, 0);
    for (int64_t i = 0; i < tokens * top_k; ++i) {
      if (expert[i] >= 0) ++load_[static_cast<size_t>(expert[i])];
    }
    RouteCounts counts;  // dropless
    for (int64_t t = 0; t < tokens; ++t) {
      counts.unusable_rows += unusable_row(expert + t * top_k, weight + t * top_k, top_k) ? 1 : 0;
    }
    const TensorView load = TensorView::of(load_.data(), {router->num_experts});
    observer.on_routing(moe_layer_[l], {.expert = TensorView::of(expert, {tokens, top_k}),
                                        .weight = TensorView::of(weight, {tokens, top_k}),
                                        .load = load,
                                        .demand = load,
                                        .counts = counts});
  }
}

Result<StepOutput> CudaModel::forward(const StepInput& input, RoutingObserver* observer) {
  StepShape shape = shape_of(input);
  SWITCHYARD_CHECK(shape.tokens <= options_.max_step_tokens, "{} tokens in a step", shape.tokens);
  SWITCHYARD_CHECK(shape.logit_rows <= options_.max_sequences, "{} logit rows", shape.logit_rows);
  device_.make_current();
  const bool as_graph = can_replay(input, shape);
  if (as_graph) {
    shape.sequences = padded(shape.sequences, options_);
    shape.tokens = shape.logit_rows = shape.sequences;
  }
  {
    const ZoneScope zone(stream_.tracer(), Zone::device_step);
    arrays_.send(input, shape, stream_, device_);
    if (as_graph) {
      SWITCHYARD_TRY(replay(shape));
    } else {
      SWITCHYARD_TRY(launch(shape));
    }
    const int64_t rows = input.logit_row.shape[0];
    device_.copy_out(results_.logits.data(), buffers_.logits, rows * config_.vocab * 4);
    if (observer != nullptr && buffers_.picks > 0) {
      const int64_t picks = config_.num_moe_blocks() * shape.tokens * most_picks_;
      device_.copy_out(results_.expert.data(), buffers_.expert, picks * 4);
      device_.copy_out(results_.weight.data(), buffers_.weight, picks * 4);
    }
    SWITCHYARD_TRY(device_.synchronize("run a step"));
  }
  if (observer != nullptr) observe(input, shape, *observer);
  return StepOutput{
      TensorView::of(results_.logits.as<float>(), {input.logit_row.shape[0], config_.vocab})};
}

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<Model>> load_on_cuda(const std::string& folder, const ModelConfig& config,
                                            const LoadOptions& options, Stream stream) {
  auto model = std::make_unique<cuda::CudaModel>(config, options, stream);
  SWITCHYARD_TRY(model->load(folder));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace switchyard::model
