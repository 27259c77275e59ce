// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 256 weight rows x up to 192 tokens, tokens in a ring of their own: experts with many tokens
// among experts with few.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile256x192Apart = tile_kernel<Tile<2, 192, 4, 9, 96>>("256x192 apart");

}  // namespace switchyard::cuda::sm90a
