// SPDX-License-Identifier: Apache-2.0
// embed -> [ norm -> attention -> norm -> moe ] x L -> norm -> logits
#include "model/model.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "attention/cache.h"
#include "base/environment.h"
#include "base/log.h"
#include "kernels/select.h"
#include "model/block.h"
#include "model/devices.h"
#include "model/tensor_map.h"
#include "model/weights.h"
#include "tensor/convert.h"

namespace switchyard::model {
namespace {

// All layers share one cache shape; a family whose layers differ needs another cache.
Status check_uniform_cache(const ModelConfig& config) {
  const attention::GqaSpec& first = config.blocks[0].attention;
  for (const BlockSpec& block : config.blocks) {
    if (block.attention.kv_heads != first.kv_heads || block.attention.head_dim != first.head_dim) {
      return fail(Code::unsupported, "config.json: layers with different key/value shapes");
    }
  }
  return {};
}

// No tensor role names a selection bias, so its values would be missing.
Status check_routers(const ModelConfig& config) {
  for (size_t l = 0; l < config.blocks.size(); ++l) {
    const std::optional<RouterSpec>& router = config.blocks[l].router;
    if (!router || !router->selection_bias) continue;
    return fail(Code::unsupported,
                "layer {}: its router has a selection bias (RouterSpec::selection_bias), and no "
                "tensor of a checkpoint is read into one: use a model whose router has none",
                l);
  }
  return {};
}

attention::CacheSpec cache_spec(const ModelConfig& config, int block_tokens, DType dtype,
                                int64_t num_blocks) {
  const attention::GqaSpec& a = config.blocks[0].attention;
  return {static_cast<int>(config.blocks.size()),
          a.kv_heads,
          a.head_dim,
          block_tokens,
          dtype,
          num_blocks};
}

/// What the model is on the processor that runs this program.
struct Host {
  ModelConfig config;
  LoadOptions options;
  Stream stream;
  checkpoint::Source source;  // keeps the embedding mapped
  const checkpoint::TensorEntry* embedding = nullptr;
  std::vector<Block> blocks;
  std::vector<float> final_norm;
  Bound<RmsNorm> rms_norm;
  Linear lm_head;
  attention::RopeTable rope;
  attention::PagedCache cache;
  Arena arena;
  MemoryFacts memory;
  std::function<void(int, TensorView)> hidden_probe;

  explicit Host(Stream s) : stream(s) {}

  moe::Limits limits() const { return {options.max_step_tokens, stream.pool().num_threads()}; }
  Status create_blocks();
  Status fill(const TensorMap& map);
  Status create_buffers();
  int64_t arena_bytes() const;

  void embed(const int32_t* token, int64_t tokens, float* x);
  attention::StepView prepare(const StepInput& input);
  TensorView logits(const StepInput& input, float* x);
};

Status Host::create_blocks() {
  const BlockShape shape{options.dtype, options.block_tokens, limits()};
  for (const BlockSpec& spec : config.blocks) {
    SWITCHYARD_ASSIGN(Block block, Block::create(config, spec, shape));
    blocks.push_back(std::move(block));
  }
  const GroupedGemm::Problem head{.n = config.vocab,
                                  .k = config.width,
                                  .max_rows = options.max_sequences,
                                  .weight = options.dtype,
                                  .deterministic = deterministic()};
  SWITCHYARD_ASSIGN(lm_head, Linear::create(head));
  SWITCHYARD_ASSIGN(rms_norm, kernels::select<RmsNorm>({config.width, config.norm_eps}));
  SWITCHYARD_ASSIGN(rope, attention::RopeTable::create(config.rope));
  return {};
}

Status Host::fill(const TensorMap& map) {
  uint64_t done = 0;
  const uint64_t total = source.total_bytes();
  const auto report = [&](uint64_t bytes) {
    done += bytes;
    if (!options.on_progress) return;
    options.on_progress("packing weights", static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  const WeightReader reader{source, map, stream.pool(), report};
  for (int l = 0; l < std::ssize(blocks); ++l) {
    SWITCHYARD_TRY(fill_block(reader, config, l, blocks[l]));
  }
  SWITCHYARD_ASSIGN(final_norm, read_vector(reader, map.at(TensorRole::final_norm)));
  embedding = &map.at(TensorRole::embedding);
  const TensorRole head = config.tied_embedding ? TensorRole::embedding : TensorRole::lm_head;
  SWITCHYARD_TRY(pack_rows(reader, lm_head, {&map.at(head)}));
  return {};
}

int64_t Host::arena_bytes() const {
  const int64_t tokens = options.max_step_tokens, rows = options.max_sequences;
  int64_t block_room = 0;
  for (const Block& block : blocks) block_room = std::max(block_room, block.room(limits()));
  const int64_t step = Arena::room<float>(tokens * config.width) +
                       Arena::room<int32_t>(tokens) * 2 +
                       2 * Arena::room<float>(tokens * config.rope.rotary_dim / 2);
  const int64_t head = 2 * Arena::room<float>(rows * config.width) +
                       Arena::room<float>(rows * config.vocab) +
                       Arena::room<std::byte>(rms_norm.workspace_bytes(limits().num_threads)) +
                       lm_head.run_dense_room(limits().num_threads);
  return step + std::max(block_room, head);
}

Status Host::create_buffers() {
  SWITCHYARD_ASSIGN(
      cache, attention::PagedCache::create(
                 cache_spec(config, options.block_tokens, options.dtype, options.num_kv_blocks)));
  SWITCHYARD_ASSIGN(arena, Arena::create(arena_bytes()));
  memory.kv_cache = cache.bytes();
  memory.arena = arena.size();
  memory.weights = lm_head.weight_bytes() + static_cast<int64_t>(embedding->bytes());
  for (Block& block : blocks) {
    memory.weights += block.attention().weight_bytes();
    if (block.dense() != nullptr) memory.weights += block.dense()->weight_bytes();
    if (moe::Layer* layer = block.moe(); layer != nullptr) {
      memory.experts += layer->experts().weight_bytes();
      memory.weights += layer->experts().weight_bytes() + layer->router().gate().weight_bytes();
      if (layer->shared() != nullptr) memory.weights += layer->shared()->weight_bytes();
    }
  }
  return {};
}

void Host::embed(const int32_t* token, int64_t tokens, float* x) {
  const ZoneScope zone(stream.tracer(), Zone::embedding);
  const int64_t width = config.width, row_bytes = width * dtype_bytes(embedding->dtype);
  stream.pool().for_range(tokens, 1 + 65536 / width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      SWITCHYARD_DCHECK(token[t] >= 0 && token[t] < config.vocab, "token {}", token[t]);
      float* row = x + t * width;
      convert_to_f32(embedding->data + token[t] * row_bytes, embedding->dtype, width, row);
      if (config.embedding_scale == 1) continue;
      for (int64_t i = 0; i < width; ++i) row[i] *= config.embedding_scale;
    }
  });
}

// Where each token's keys and values go, and its rotation.
attention::StepView Host::prepare(const StepInput& input) {
  const int64_t tokens = input.token.shape[0];
  attention::StepView view;
  view.tokens = tokens;
  view.sequences = static_cast<int>(input.context_len.shape[0]);
  view.seq_offset = input.seq_offset.as<int32_t>();
  view.context_len = input.context_len.as<int32_t>();
  view.block_table = input.block_table.as<int32_t>();
  view.max_blocks = static_cast<int>(input.block_table.shape[1]);
  const auto slot = arena.take<int32_t>(tokens);
  const auto length = arena.take<int32_t>(tokens);
  const int32_t* position = input.position.as<int32_t>();
  for (int b = 0; b < view.sequences; ++b) {
    const int32_t begin = view.seq_offset[b], end = view.seq_offset[b + 1];
    for (int32_t t = begin; t < end; ++t) {
      const int32_t block = position[t] / options.block_tokens;
      slot[t] = view.block_table[int64_t{b} * view.max_blocks + block] * options.block_tokens +
                position[t] % options.block_tokens;
      length[t] = view.context_len[b] + end - begin;
    }
  }
  const int64_t pairs = config.rope.rotary_dim / 2;
  const auto cos = arena.take<float>(tokens * pairs), sin = arena.take<float>(tokens * pairs);
  rope.fill({position, static_cast<size_t>(tokens)}, length, cos.data(), sin.data(), stream);
  view.slot = slot.data();
  view.cos = cos.data();
  view.sin = sin.data();
  return view;
}

TensorView Host::logits(const StepInput& input, float* x) {
  const ZoneScope zone(stream.tracer(), Zone::lm_head);
  const int64_t rows = input.logit_row.shape[0], width = config.width;
  const auto picked = arena.take<float>(rows * width), normed = arena.take<float>(rows * width);
  const auto out = arena.take<float>(rows * config.vocab);
  const int32_t* row = input.logit_row.as<int32_t>();
  for (int64_t n = 0; n < rows; ++n) {
    std::copy_n(x + row[n] * width, width, picked.data() + n * width);
  }
  const int64_t mark = arena.mark();
  const auto workspace =
      arena.take<std::byte>(rms_norm.workspace_bytes(stream.pool().num_threads()));
  rms_norm.run(
      {.x = picked.data(), .weight = final_norm.data(), .y = normed.data(), .tokens = rows},
      workspace, stream);
  arena.rewind(mark);
  lm_head.run_dense(normed.data(), rows, out.data(), arena, stream);
  if (config.logit_scale != 1) {
    for (float& value : out) value *= config.logit_scale;
  }
  return TensorView::of(out.data(), {rows, config.vocab});
}

class HostModel final : public Model {
 public:
  explicit HostModel(std::unique_ptr<Host> host) : host_(std::move(host)) {}

  const ModelConfig& config() const noexcept override { return host_->config; }
  const MemoryFacts& memory() const noexcept override { return host_->memory; }
  std::string_view expert_kernel() const noexcept override;
  Result<StepOutput> forward(const StepInput& input, RoutingObserver* observer) override;
  void set_hidden_probe(std::function<void(int, TensorView)> probe) override {
    host_->hidden_probe = std::move(probe);
  }

 private:
  std::unique_ptr<Host> host_;
};

std::string_view HostModel::expert_kernel() const noexcept {
  for (const Block& block : host_->blocks) {
    if (block.moe() != nullptr) return block.moe()->experts().gate_up().gemm().name();
  }
  return host_->lm_head.gemm().name();
}

Result<StepOutput> HostModel::forward(const StepInput& input, RoutingObserver* observer) {
  Host& m = *host_;
  const int64_t tokens = input.token.shape[0];
  SWITCHYARD_CHECK(tokens <= m.options.max_step_tokens, "{} tokens in a step", tokens);
  SWITCHYARD_CHECK(input.logit_row.shape[0] <= m.options.max_sequences, "{} logit rows",
                   input.logit_row.shape[0]);
  m.arena.reset();
  const auto x = m.arena.take<float>(tokens * m.config.width);
  m.embed(input.token.as<int32_t>(), tokens, x.data());
  const attention::StepView view = m.prepare(input);
  int moe_layer = 0;
  for (int l = 0; l < std::ssize(m.blocks); ++l) {
    const LayerScope in_trace(m.stream.tracer(), l);
    const int64_t mark = m.arena.mark();
    const moe::Step step{m.stream, m.arena, l};
    const auto routing = m.blocks[l].forward(x.data(), view, m.cache.k(l), m.cache.v(l), step);
    if (routing && observer != nullptr) observer->on_routing(moe_layer, *routing);
    moe_layer += routing ? 1 : 0;
    m.arena.rewind(mark);
    if (m.hidden_probe) m.hidden_probe(l, TensorView::of(x.data(), {tokens, m.config.width}));
  }
  return StepOutput{m.logits(input, x.data())};
}

}  // namespace

Result<ModelConfig> Model::read_config(const std::string& folder) {
  SWITCHYARD_ASSIGN(const Json json, read_json_file(folder + "/config.json"));
  if (!json.is_object()) {
    return fail(Code::bad_file, "{}/config.json: expected an object, found {}", folder,
                json.kind_name());
  }
  return read_config_json(json);
}

Result<ModelConfig> Model::read_config_json(const Json& json) {
  SWITCHYARD_ASSIGN(const Family* family, find_family(json));
  SWITCHYARD_ASSIGN(ModelConfig config, family->parse(json));
  config.family = std::string(family->name);
  SWITCHYARD_TRY(config.check());
  SWITCHYARD_TRY(check_uniform_cache(config));
  return config;
}

int64_t Model::kv_block_bytes(const ModelConfig& config, int block_tokens, DType dtype) {
  return cache_spec(config, block_tokens, dtype, 1).block_bytes();
}

Result<std::unique_ptr<Model>> load_on_host(const std::string& folder, const ModelConfig& config,
                                            const LoadOptions& options, Stream stream) {
  if (options.random_weights) {
    return fail(
        Code::unsupported,
        "random weights are made on an accelerator: add --device cuda, or give a model folder");
  }
  auto host = std::make_unique<Host>(stream);
  host->options = options;
  host->config = config;
  const Family* family = find_family_named(config.family);
  SWITCHYARD_CHECK(family != nullptr, "no family is called '{}'", config.family);
  SWITCHYARD_ASSIGN(host->source, checkpoint::open_checkpoint(folder));
  std::vector<Fault> faults;
  const TensorMap map = TensorMap::build(*family, host->config, host->source, faults);
  if (!faults.empty()) return summarize_faults(faults, folder);
  SWITCHYARD_TRY(host->create_blocks());
  SWITCHYARD_TRY(host->fill(map));
  SWITCHYARD_TRY(host->create_buffers());
  log(LogLevel::info, "loaded {} with {}", folder, host->lm_head.gemm().name());
  return std::unique_ptr<Model>(std::make_unique<HostModel>(std::move(host)));
}

Result<std::unique_ptr<Model>> Model::load(const std::string& folder, const ModelConfig& config,
                                           const LoadOptions& options, Stream stream) {
  SWITCHYARD_TRY(check_routers(config));
  return find_device(stream.device())->load(folder, config, options, stream);
}

}  // namespace switchyard::model
