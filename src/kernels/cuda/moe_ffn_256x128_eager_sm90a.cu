// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 256 weight rows x up to 128 tokens that frees stages at once: while memory binds.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile256x128Eager = tile_kernel<Tile<2, 128, 4, 0, true>>("256x128 eager");

}  // namespace switchyard::cuda::sm90a
