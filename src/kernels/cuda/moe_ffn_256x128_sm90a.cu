// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 256 weight rows x up to 128 tokens: up to about 100 tokens of an expert.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile256x128 = tile_kernel<Tile<2, 128, 4>>("256x128");

}  // namespace switchyard::cuda::sm90a
