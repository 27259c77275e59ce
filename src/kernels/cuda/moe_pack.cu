// SPDX-License-Identifier: Apache-2.0
// Packs one expert's weights into the layout of ops/moe_pack.h, on the device: one thread a 16-byte chunk.
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/ops/moe_pack.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 256;

// Eight inputs of a row from `input` on; zeros beyond the matrix.
__device__ uint4 chunk_of(const uint16_t* from, int64_t row, int64_t rows, int64_t input,
                          int64_t inputs) {
  uint32_t pair[4] = {};
  if (row < rows) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t value = input + i < inputs ? from[row * inputs + input + i] : 0;
      pair[i / 2] |= value << (i % 2 * 16);
    }
  }
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

// Chunk i of the packed matrix, in the order of its row-major self: (packed row, input / 8).
__global__ void pack_w13(const uint16_t* gate, const uint16_t* up, int64_t width, int64_t ffn_width,
                         char* packed) {
  const int64_t inputs = MoePack::padded(width), rows = 2 * MoePack::padded(ffn_width);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / (inputs / 8), input = i % (inputs / 8) * 8;
  if (row >= rows) return;
  const uint16_t* const from = MoePack::w13_up(row) == 0 ? gate : up;
  const uint4 chunk = chunk_of(from, MoePack::w13_hidden(row), ffn_width, input, width);
  *reinterpret_cast<uint4*>(packed + MoePack::byte_of(row, input, inputs)) = chunk;
}

__global__ void pack_w2(const uint16_t* down, int64_t width, int64_t ffn_width, char* packed) {
  const int64_t inputs = MoePack::padded(ffn_width), rows = MoePack::padded(width);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / (inputs / 8), input = i % (inputs / 8) * 8;
  if (row >= rows) return;
  *reinterpret_cast<uint4*>(packed + MoePack::byte_of(row, input, inputs)) =
      chunk_of(down, row, width, input, ffn_width);
}

// A block of threads a block of weights: from where it is packed to where it is placed.
__global__ void place(const uint4* from, char* expert, int rows, int inputs, uint32_t side_mask) {
  constexpr int kChunks = MoePack::kBlockBytes / 16;
  static_assert(kThreads == kChunks);
  const int steps = inputs / MoePack::kAtomInputs;
  const auto strip = static_cast<int>(blockIdx.x) / steps,
             step = static_cast<int>(blockIdx.x) % steps;
  const PackedStrip placed(expert, 0, strip, rows, inputs, side_mask);
  auto* const to = reinterpret_cast<uint4*>(const_cast<char*>(placed.block(step)));
  to[threadIdx.x] = from[int64_t{blockIdx.x} * kChunks + threadIdx.x];
}

__global__ void turn_gate(const float* gate, int64_t experts, int64_t width, float* by_input) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < experts * width) by_input[i] = gate[i % experts * width + i / experts];
}

__global__ void reweigh_gate(const float* gate, const float* gate_norm, const float* row_norm,
                             int64_t count, int64_t width, bf16* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const float row = row_norm[i % width], ratio = gate_norm[i % width] / row;
  to[i] = __float2bfloat16(isfinite(ratio) ? gate[i] * ratio : 0.0f);
}

unsigned blocks_of(int64_t bytes) noexcept {
  return static_cast<unsigned>((bytes / 16 + kThreads - 1) / kThreads);
}

}  // namespace
}  // namespace switchyard::cuda

namespace switchyard {

void moe_pack_w13_on_device(const void* gate, const void* up, int64_t width, int64_t ffn_width,
                            void* packed, void* stream) noexcept {
  cuda::pack_w13<<<cuda::blocks_of(MoePack::w13_bytes(width, ffn_width)), cuda::kThreads, 0,
                   static_cast<cudaStream_t>(stream)>>>(static_cast<const uint16_t*>(gate),
                                                        static_cast<const uint16_t*>(up), width,
                                                        ffn_width, static_cast<char*>(packed));
}

void moe_pack_w2_on_device(const void* down, int64_t width, int64_t ffn_width, void* packed,
                           void* stream) noexcept {
  cuda::pack_w2<<<cuda::blocks_of(MoePack::w2_bytes(width, ffn_width)), cuda::kThreads, 0,
                  static_cast<cudaStream_t>(stream)>>>(static_cast<const uint16_t*>(down), width,
                                                       ffn_width, static_cast<char*>(packed));
}

void moe_place_on_device(void* packed, int64_t experts, int64_t rows, int64_t inputs,
                         const L2Sides& sides, void* scratch, void* stream) noexcept {
  if (sides.mask == 0) return;
  auto* const on = static_cast<cudaStream_t>(stream);
  const int64_t bytes = rows * inputs * 2;
  for (int64_t e = 0; e < experts; ++e) {
    char* const expert = static_cast<char*>(packed) + e * bytes;
    cudaMemcpyAsync(scratch, expert, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, on);
    cuda::place<<<static_cast<unsigned>(bytes / MoePack::kBlockBytes), cuda::kThreads, 0, on>>>(
        static_cast<const uint4*>(scratch), expert, static_cast<int>(rows),
        static_cast<int>(inputs), sides.mask);
  }
}

void gate_by_input_on_device(const float* gate, int64_t experts, int64_t width, float* by_input,
                             void* stream) noexcept {
  const int64_t blocks = (experts * width + cuda::kThreads - 1) / cuda::kThreads;
  cuda::turn_gate<<<static_cast<unsigned>(blocks), cuda::kThreads, 0,
                    static_cast<cudaStream_t>(stream)>>>(gate, experts, width, by_input);
}

void gate_of_other_norm_on_device(const float* gate, const float* gate_norm, const float* row_norm,
                                  int64_t experts, int64_t width, void* to, void* stream) noexcept {
  const int64_t count = experts * width;
  cuda::reweigh_gate<<<static_cast<unsigned>((count + cuda::kThreads - 1) / cuda::kThreads),
                       cuda::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      gate, gate_norm, row_norm, count, width, static_cast<cuda::bf16*>(to));
}

}  // namespace switchyard
