// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "model/devices.h"
#include "schedule/blocks.h"

namespace switchyard::engine {
namespace {

using schedule::blocks_for;

/// The cache may take this part of what weights and steps leave when nobody says how large it
/// should be: the rest of the machine, and the page cache from which the weights come, need room
/// too.
constexpr double kCacheShare = 0.5;
/// A model that can hold fewer positions than this, though made for more, is not worth starting.
constexpr int kLeastModelLen = 256;

std::string size_text(int64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

Error does_not_fit(const MemoryNeeds& needs, int64_t cache_bytes, int64_t available,
                   std::string_view advice) {
  return fail(Code::out_of_memory,
              "the model does not fit: weights {} + step {} + KV cache {} = {}, but {} of memory "
              "are available: {}",
              size_text(needs.weight_bytes), size_text(needs.step_bytes), size_text(cache_bytes),
              size_text(needs.weight_bytes + needs.step_bytes + cache_bytes), size_text(available),
              advice);
}

Status check_options(const MemoryNeeds& needs, const EngineOptions& options) {
  if (options.block_tokens < 1 || options.block_tokens > 1024)
    return fail(Code::bad_request, "block_tokens is {}, expected 1 to 1024", options.block_tokens);
  if (options.max_sequences < 1)
    return fail(Code::bad_request, "max_sequences is {}, expected at least 1",
                options.max_sequences);
  if (options.max_step_tokens < options.max_sequences)
    return fail(Code::bad_request,
                "max_step_tokens is {}, but {} sequences may decode one token each in a step: "
                "raise it or lower max_sequences",
                options.max_step_tokens, options.max_sequences);
  if (options.max_model_len < 0 || options.max_model_len > needs.max_positions)
    return fail(Code::bad_request,
                "max_model_len is {}, expected at most the {} positions that the model was made "
                "for (0: all of them)",
                options.max_model_len, needs.max_positions);
  if (options.kv_cache_bytes < 0)
    return fail(Code::bad_request, "kv_cache_bytes is {}, expected 0 or more",
                options.kv_cache_bytes);
  return {};
}

/// Blocks of the cache: as asked for, or enough for everybody within a share of what is left.
int64_t choose_blocks(const MemoryNeeds& needs, const EngineOptions& options, int model_len,
                      int64_t left_bytes) {
  const int64_t everybody =
      int64_t{options.max_sequences} * blocks_for(model_len, options.block_tokens);
  if (options.kv_cache_bytes > 0)
    return std::min(everybody, options.kv_cache_bytes / needs.kv_block_bytes);
  const auto affordable =
      static_cast<int64_t>(static_cast<double>(left_bytes) * kCacheShare) / needs.kv_block_bytes;
  return std::min(everybody, affordable);
}

}  // namespace

MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options,
                         int64_t kv_block_bytes) {
  MemoryNeeds needs;
  const model::ParameterCount count = model::count_parameters(config);
  // A tied embedding is there twice: packed as output matrix, and as rows. Routers stay in f32.
  const int64_t again = config.tied_embedding ? count.embedding : 0;
  const int each = dtype_bytes(precision_dtype(options.precision));
  needs.weight_bytes = (count.total - count.router + again) * each + count.router * 4;
  needs.kv_block_bytes = kv_block_bytes;
  needs.max_positions = config.max_positions;
  // The widest layer: residual, norm and output [T, D]; q, k, v and the attention's output; K rows
  // per token of inputs and outputs [D] and of gate and up [F].
  int64_t widest = 0;
  for (const model::BlockSpec& block : config.blocks) {
    const auto& attention = block.attention;
    const int64_t heads = int64_t{2} * attention.heads + int64_t{2} * attention.kv_heads;
    const int64_t picks = block.router ? block.router->top_k : 1;
    const int64_t rows = picks * (2 * int64_t{config.width} + 2 * int64_t{block.ffn_width});
    widest = std::max(widest, 4 * int64_t{config.width} + heads * attention.head_dim + rows +
                                  2 * int64_t{block.shared.width});
  }
  constexpr int64_t kFloat = 4;
  needs.step_bytes =
      kFloat * (options.max_step_tokens * widest + int64_t{options.max_sequences} * config.vocab);
  return needs;
}

MemoryNeeds memory_needs_on(DeviceId device, const model::ModelConfig& config,
                            EngineOptions& options) {
  const model::Device& its = *model::find_device(device);
  if (options.block_tokens == 0) options.block_tokens = its.block_tokens;
  const DType dtype = precision_dtype(options.precision);
  MemoryNeeds needs = memory_needs(
      config, options, model::Model::kv_block_bytes(config, options.block_tokens, dtype));
  const int longest = options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  const int blocks = blocks_for(longest, std::max(options.block_tokens, 1));
  needs.step_bytes += its.attention_bytes(config, {.dtype = dtype,
                                                   .max_step_tokens = options.max_step_tokens,
                                                   .max_sequences = options.max_sequences,
                                                   .block_tokens = options.block_tokens,
                                                   .num_kv_blocks = blocks,
                                                   .max_blocks_per_sequence = blocks,
                                                   .on_progress = {}});
  return needs;
}

Result<MemoryPlan> plan_memory(const MemoryNeeds& needs, const EngineOptions& options,
                               int64_t available_bytes) {
  SWITCHYARD_TRY(check_options(needs, options));
  const int wanted = options.max_model_len > 0 ? options.max_model_len : needs.max_positions;
  const int64_t left = available_bytes - needs.weight_bytes - needs.step_bytes;
  if (left < 0)
    return does_not_fit(needs, 0, available_bytes,
                        "use bf16 weights, a smaller model, or a machine with more memory");
  if (options.kv_cache_bytes > left)
    return does_not_fit(needs, options.kv_cache_bytes, available_bytes, "ask for a smaller cache");
  const int64_t blocks = choose_blocks(needs, options, wanted, left);
  const int64_t tokens = std::min<int64_t>(blocks * options.block_tokens, wanted);
  if (tokens < std::min(wanted, options.max_model_len > 0 ? wanted : kLeastModelLen))
    return does_not_fit(
        needs, blocks_for(wanted, options.block_tokens) * needs.kv_block_bytes, available_bytes,
        fmt::format("the cache would hold {} of {} positions; ask for a shorter max_model_len",
                    tokens, wanted));
  if (tokens < wanted)
    log(LogLevel::warning,
        "sequences are limited to {} of the model's {} positions, because the KV cache cannot hold "
        "more in the memory that is left ({})",
        tokens, wanted, size_text(left));
  MemoryPlan plan;
  plan.weight_bytes = needs.weight_bytes;
  plan.step_bytes = needs.step_bytes;
  plan.kv_cache_bytes = blocks * needs.kv_block_bytes;
  plan.available_bytes = available_bytes;
  plan.num_blocks = static_cast<int>(blocks);
  plan.max_model_len = static_cast<int>(tokens);
  return plan;
}

}  // namespace switchyard::engine
