// SPDX-License-Identifier: Apache-2.0
// Dense products of some hundred tokens that fill Hopper in one wave of blocks (dense_tile_sm90a.cu). They are chained to the launches
// around them, which the library's are not. Each is false, and nothing is queued, where another way is better or the only one: by the shape and the
// device alone, so that bits do not change from run to run.
#pragma once
#include "kernels/cuda/step.h"

namespace switchyard::cuda {

/// y += alpha * x W^T. bf16, without bias.
bool dense_tile_added(const Dense& args, StreamHandle stream) noexcept;

/// y_bf16 = x W^T. bf16, without bias and alpha.
bool dense_tile_rounded(const Dense& args, StreamHandle stream) noexcept;

/// What tiles hand each other whose heads' norms go over all of them: the number of the launch << 32 | squares.
struct FullHeadWords {
  static constexpr int kRows = 1024,
                       kTiles =
                           16;  ///< most tokens; most tiles that share the queries, or the keys
  static constexpr int64_t kCount = 2 * (kRows / 16) + 2 * kTiles * kRows;
};

/// The same of q, k and v, and prepare_heads of the sums, which are not rounded before. For heads of 128 values; for norms over all of them
/// with `words` and without a clip. `heads` need not name qkv.
bool dense_tile_heads(const Dense& args, const PrepareHeads& heads, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
