// SPDX-License-Identifier: Apache-2.0
// Scores a text by a model: the negative log-likelihood of its tokens, and what became of their
// picks.
//
//   ids [n] are cut into windows of C tokens that do not overlap; each starts with an empty cache.
//   Row i of a window says how likely token i + 1 of the text is (the last row: the first token of
//   the next window). All rows count but the first U of each window, which are context alone.
//   A window is fed in steps of at most S tokens, one sequence at a time, so a capacity is that of
//   min(C, S) tokens.
// With U = C / 2 this is what llama.cpp's perplexity does, but for one row a window; with U = 0 it
// is the loss of the demonstration model's training.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "model/model.h"

namespace switchyard::cli {

struct WindowSpec {
  int context = 512;      ///< C
  int unscored = 0;       ///< U, below C
  int step_tokens = 512;  ///< S
  int block_tokens = 16;  ///< P of the model's cache
  int64_t num_blocks() const { return (context + block_tokens - 1) / block_tokens; }
};

/// Sums over a text; texts add up.
struct TextScore {
  struct Layer {
    int64_t picks = 0, dropped = 0;
  };
  int64_t tokens = 0;      ///< scored
  double nats = 0;         ///< sum of -log p
  int64_t fed_tokens = 0;  ///< through the model, scored or not
  double forward_s = 0;
  int64_t unrouted_tokens = 0;  ///< lost all their picks in a layer; summed over layers
  std::vector<Layer> layers;    ///< [MoE layers]

  void add(const TextScore& other);
  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;
  double drop_rate() const;  ///< over all layers; 0 without any
  double drop_rate(size_t layer) const;
  double tokens_per_s() const { return static_cast<double>(fed_tokens) / forward_s; }
};

/// The model must have been loaded for S tokens and S logit rows in a step, and num_blocks() blocks.
/// Errors: Code::bad_request when no token is left to score, Code::internal when logits are not
/// finite.
Result<TextScore> score_text(model::Model& model, Pool& pool, std::span<const int32_t> ids,
                             const WindowSpec& spec);

}  // namespace switchyard::cli
