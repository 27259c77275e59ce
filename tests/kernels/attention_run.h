// SPDX-License-Identifier: Apache-2.0
// The inputs of an attention case and its run on one entry. Whatever no token may look at is poisoned: cache slots that
// hold no position, blocks that only a forgotten part of a window needs, table entries behind a sequence's end.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "cases/attention.h"
#include "kernels/entry_run.h"

namespace switchyard::cases {

class AttentionInputs {
 public:
  explicit AttentionInputs(const AttentionCase& c) : case_(c) {
    int64_t tokens = 0;
    for (const SequenceCase& s : c.sequences) tokens += s.tokens;
    q_ = random_values(tokens * c.heads * c.head_dim, 1, c.score_size);
    for (size_t b = 0; b < c.sequences.size(); ++b) {
      const int64_t count = int64_t{length(b)} * c.kv_heads * c.head_dim;
      const auto seed = static_cast<uint32_t>(2 * b);
      keys_.push_back(bf16_values(count, 100 + seed));
      values_.push_back(bf16_values(count, 101 + seed));
    }
  }

  Attention::Problem problem(DType cache) const {
    return {.heads = case_.heads,
            .kv_heads = case_.kv_heads,
            .head_dim = case_.head_dim,
            .block_tokens = case_.block_tokens,
            .cache = cache,
            .window = case_.window,
            .scale = 1 / std::sqrt(static_cast<float>(case_.head_dim)),
            .max_tokens = std::max<int64_t>(1, std::ssize(q_) / (case_.heads * case_.head_dim)),
            .deterministic = deterministic};
  }
  bool deterministic = false;  ///< asked of the kernels
  const AttentionCase& shape() const { return case_; }
  int64_t token_width() const { return int64_t{case_.heads} * case_.head_dim; }
  std::vector<float>& q() { return q_; }

  /// A step of some of the sequences' tokens. Only positions before its end are in the cache.
  struct Part {
    int sequence, first, tokens;  // tokens of the case
  };
  std::vector<Part> all() const {
    std::vector<Part> parts;
    for (size_t b = 0; b < case_.sequences.size(); ++b) {
      parts.push_back({static_cast<int>(b), 0, case_.sequences[b].tokens});
    }
    return parts;
  }

  /// The result [tokens of the parts, H, Z].
  std::vector<float> run(const Kernel<Attention>& kernel, DType cache,
                         const std::vector<Part>& parts, int num_threads) const {
    const Attention::Problem p = problem(cache);
    Step step(*this, p, parts);
    std::vector<float> out = poisoned_values(std::ssize(step.q) + token_width());
    run_entry(kernel, p,
              {.q = step.q.data(),
               .k_cache = step.k.data(),
               .v_cache = step.v.data(),
               .seq_offset = step.seq_offset.data(),
               .context_len = step.context_len.data(),
               .block_table = step.block_table.data(),
               .max_blocks = static_cast<int>(step.max_blocks),
               .sequences = static_cast<int>(parts.size()),
               .out = out.data()},
              num_threads);
    const std::vector<float> guard = poisoned_values(token_width());
    EXPECT_TRUE(same_bits(std::span(out).subspan(step.q.size()), guard)) << "wrote behind the end";
    out.resize(step.q.size());
    return out;
  }

 private:
  int length(size_t b) const { return case_.sequences[b].context + case_.sequences[b].tokens; }
  int64_t first_token(int sequence) const {
    int64_t first = 0;
    for (int b = 0; b < sequence; ++b) first += case_.sequences[static_cast<size_t>(b)].tokens;
    return first;
  }

  /// Everything that one call takes.
  struct Step {
    std::vector<float> q;
    std::vector<int32_t> seq_offset{0}, context_len, block_table;
    int64_t max_blocks = 1;
    Storage k, v;

    Step(const AttentionInputs& in, const Attention::Problem& p, const std::vector<Part>& parts) {
      int64_t num_blocks = 0;
      for (const Part& part : parts) {
        const auto from =
            in.q_.begin() + (in.first_token(part.sequence) + part.first) * in.token_width();
        q.insert(q.end(), from, from + part.tokens * in.token_width());
        seq_offset.push_back(seq_offset.back() + part.tokens);
        context_len.push_back(in.case_.sequences[static_cast<size_t>(part.sequence)].context +
                              part.first);
        const int64_t blocks =
            (context_len.back() + part.tokens + p.block_tokens - 1) / p.block_tokens;
        max_blocks = std::max(max_blocks, blocks + 1);
        num_blocks += blocks;
      }
      num_blocks += 3;  // some belong to nobody
      const int64_t elements = num_blocks * p.kv_heads * p.block_tokens * p.head_dim;
      k = poisoned(elements * dtype_bytes(p.cache));
      v = poisoned(elements * dtype_bytes(p.cache));
      const std::vector<int32_t> order = scrambled(num_blocks, 5);
      block_table.assign(parts.size() * static_cast<size_t>(max_blocks), kNowhere);
      size_t next = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t end = context_len[i] + parts[i].tokens;
        const int64_t seen = p.window > 0 ? std::max<int64_t>(0, context_len[i] + 1 - p.window) : 0;
        for (int64_t at = 0; at < end; ++at) {
          int32_t& block = block_table[i * static_cast<size_t>(max_blocks) +
                                       static_cast<size_t>(at / p.block_tokens)];
          if (at < seen / p.block_tokens * p.block_tokens) continue;
          if (block == kNowhere) block = order[next++];
          fill(in, p, parts[i].sequence, at, block);
        }
      }
    }

    void fill(const AttentionInputs& in, const Attention::Problem& p, int sequence, int64_t at,
              int64_t block) {
      for (int64_t g = 0; g < p.kv_heads; ++g) {
        const int64_t base = (block * p.kv_heads + g) * p.block_tokens * p.head_dim;
        const int64_t offset = at % p.block_tokens;
        for (int64_t z = 0; z < p.head_dim; ++z) {
          const auto i = static_cast<size_t>((at * p.kv_heads + g) * p.head_dim + z);
          store_element(k.data(), p.cache, base + z * p.block_tokens + offset,
                        in.keys_[static_cast<size_t>(sequence)][i]);
          store_element(v.data(), p.cache, base + offset * p.head_dim + z,
                        in.values_[static_cast<size_t>(sequence)][i]);
        }
      }
    }
    static constexpr int32_t kNowhere = 1 << 28;  // following it would leave the process
  };

  AttentionCase case_;
  std::vector<float> q_;                           // [T, H, Z]
  std::vector<std::vector<float>> keys_, values_;  // of each sequence [positions, G, Z]
};

}  // namespace switchyard::cases
