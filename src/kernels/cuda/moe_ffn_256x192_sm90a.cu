// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 256 weight rows x up to 192 tokens: many tokens of an expert.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile256x192 = tile_kernel<Tile<2, 192, 3>>("256x192");

}  // namespace switchyard::cuda::sm90a
