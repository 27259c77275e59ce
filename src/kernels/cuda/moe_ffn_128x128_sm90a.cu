// SPDX-License-Identifier: Apache-2.0
// The Hopper MoE kernel with items of 128 weight rows x up to 128 tokens: where 256 does not divide the widths, for more than some 20 tokens of an expert.
#include "kernels/cuda/moe_ffn_sm90a_kernel.cuh"
#include "kernels/cuda/moe_ffn_sm90a_tiles.cuh"

namespace switchyard::cuda::sm90a {

const TileKernel kTile128x128 = tile_kernel<Tile<1, 128, 6>>("128x128");

}  // namespace switchyard::cuda::sm90a
