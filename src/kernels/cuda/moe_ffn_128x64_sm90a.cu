// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 128 weight rows x up to 64 tokens: few tokens of an expert.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile128x64 = tile_kernel<Tile<1, 64, 9>>("128x64");

}  // namespace switchyard::cuda::sm90a
