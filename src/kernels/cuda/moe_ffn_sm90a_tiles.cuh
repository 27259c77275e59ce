// SPDX-License-Identifier: Apache-2.0
// The tile configurations of the Hopper MoE kernel, one per source file, so that they compile side by side.
#pragma once
#include "kernels/cuda/moe_ffn_sm90a_plan.cuh"

namespace switchyard::cuda::sm90a {

struct TileKernel {
  const char* name;
  int weight_rows, tokens;  ///< of an item; weight_rows divides 2F and D
  void (*launch)(const MoeFfnParams& params, cudaStream_t stream) noexcept;
};

extern const TileKernel kTile128x64;        // a deep ring: weights come from memory, tokens are few
extern const TileKernel kTile128x128;       // for widths that 256 does not divide
extern const TileKernel kTile256x128;       // hot experts among cold ones, while memory binds
extern const TileKernel kTile256x192Apart;  // more weights on their way where tokens are few
extern const TileKernel kTile256x192;       // the least L2 traffic for a product

}  // namespace switchyard::cuda::sm90a
