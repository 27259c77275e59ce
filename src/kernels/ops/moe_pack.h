// SPDX-License-Identifier: Apache-2.0
// The packed expert weights of the device kernels: one layout for all of them, already in the order that shared memory
// wants, so that a stage is one bulk copy, and only of placed weights a box of a tensor map (kernels/cuda/packed_boxes.cuh).
//
//   atom    8 rows x 64 inputs of bf16, 1 KiB; the eight 16-byte chunks of row r stand at c ^ r: the 128-byte swizzle of
//           wgmma (K-major, 1024 bytes from one group of 8 rows to the next) and free of bank conflicts for ldmatrix
//           and for 16-byte reads
//   block   4 atoms, one below the other: 32 rows x 64 inputs, 4 KiB
//   matrix  blocks in the order [row / 32][input / 64]: 32 rows x any multiple of 64 inputs are contiguous bytes, so a
//           stage of 32 x 512 is one copy of 32 KiB, and one of 128 x 64 is four copies of 4 KiB, which lie in shared
//           memory as one 128-row operand
//   expert  its matrix, then the next expert's
//   placed  where the sides of the L2 are known and a model has large experts (ops/l2_sides.h, kernels/cuda/l2_memory.h), blocks are placed by
//           them. Strips of 32 rows come in groups of 16 (the last of a matrix may be smaller, but even), and strip i of the first half
//           of a group shares its memory with strip i of the second: their blocks of the same 64 inputs are a pair of 8 KiB, of which
//           the first half's is on side 0; pairs follow each other along the inputs. So 256 rows lie on one side. Blocks of a strip are
//           apart then: boxes of tensor maps bring several by one instruction (kernels/cuda/packed_boxes.cuh)
//
//   w13     [E, 2 Fp, Dp]: the atoms of a block alternate gate, up, gate, up, so a block makes 16 hidden columns.
//           In the accumulators of mma m16n8 and wgmma m64 rows r and r + 8 belong to one thread; with weights as the
//           N operand columns 8 apart do. Either way a thread holds gate and up of the same hidden column.
//   w2      [E, Dp, Fp]: plain rows
// Dp and Fp are D and F rounded up to 64; what is added is zero, so padded hidden columns are act(0) * 0 = 0.
#pragma once
#include <cstdint>

#include "kernels/ops/l2_sides.h"

namespace switchyard {

struct MoePack {
  static constexpr int kAtomRows = 8;      ///< rows of an atom
  static constexpr int kAtomInputs = 64;   ///< inputs of an atom
  static constexpr int kAtomBytes = 1024;  ///< aligned to its size in shared memory
  static constexpr int kBlockRows = 32;
  static constexpr int kBlockBytes = 4096;
  static constexpr int kGroupStrips = 16;  ///< of placed weights: 512 rows
  static constexpr int kPairBytes = 2 * kBlockBytes;
  static constexpr int kPlacedAlignment = 4 * kPairBytes;  ///< of placed matrices
  static constexpr int kBlockHidden = 16;  ///< hidden columns that a block of w13 makes

  static constexpr int64_t padded(int64_t width) noexcept { return (width + 63) / 64 * 64; }
  /// Bytes of one expert's gate and up [2 Fp, Dp].
  static constexpr int64_t w13_bytes(int64_t width, int64_t ffn_width) noexcept {
    return 4 * padded(width) * padded(ffn_width);
  }
  /// Bytes of one expert's down [Dp, Fp].
  static constexpr int64_t w2_bytes(int64_t width, int64_t ffn_width) noexcept {
    return 2 * padded(width) * padded(ffn_width);
  }
  /// Byte of (packed row, input) in a matrix of `inputs` (a multiple of 64) inputs.
  static constexpr int64_t byte_of(int64_t row, int64_t input, int64_t inputs) noexcept {
    const int64_t block = row / kBlockRows * (inputs / kAtomInputs) + input / kAtomInputs;
    const int64_t chunk = input % kAtomInputs / 8 ^ row % kAtomRows;
    return block * kBlockBytes + row % kBlockRows * 128 + chunk * 16 + input % 8 * 2;
  }
  /// Whether weights of such experts are worth placing: a strip of small experts has few blocks, and launches for few tokens, which
  /// copy four of them at once, lose more than they gain. Measured: bench/results/notes-gpu-moe.md.
  static constexpr bool gains_from_sides(int64_t width, int64_t ffn_width) noexcept {
    constexpr int64_t kLeastExpert = int64_t{12} << 20;
    return w13_bytes(width, ffn_width) + w2_bytes(width, ffn_width) >= kLeastExpert;
  }
  /// Of placed weights, a strip among an even number of `strips`: which pair of strips it is in, and which of the two it is.
  static constexpr int pair_of(int strip, int strips) noexcept {
    const int inside = strip % kGroupStrips, half = half_group(strip, strips);
    return strip / kGroupStrips * (kGroupStrips / 2) + (inside < half ? inside : inside - half);
  }
  static constexpr int half_of(int strip, int strips) noexcept {
    return strip % kGroupStrips < half_group(strip, strips) ? 0 : 1;
  }
  /// Of units of kStrips strips, where all groups are whole: the index-th of those on a side.
  template <int kStrips, class Int>
  static constexpr Int on_side(Int index, int side) noexcept {
    constexpr int kTogether = kGroupStrips / 2 / kStrips;
    static_assert(kTogether * kStrips * 2 == kGroupStrips);
    return index + (index / kTogether + side) * kTogether;
  }
  /// The strip that is half `half` of a pair of strips.
  static constexpr int strip_of(int pair, int half, int strips) noexcept {
    const int first = pair / (kGroupStrips / 2) * kGroupStrips;
    return first + pair % (kGroupStrips / 2) + half * half_group(first, strips);
  }
  /// The packed row of w13 that holds gate (up = 0) or up (up = 1) of a hidden column.
  static constexpr int64_t w13_row(int64_t hidden, int up) noexcept {
    return hidden / kBlockHidden * kBlockRows + hidden % kBlockHidden / kAtomRows * 16 + up * 8 +
           hidden % kAtomRows;
  }
  /// The reverse: hidden column, and whether it is up's, of a packed row.
  static constexpr int64_t w13_hidden(int64_t row) noexcept {
    return row / (2 * kAtomRows) * kAtomRows + row % kAtomRows;
  }
  static constexpr int w13_up(int64_t row) noexcept {
    return static_cast<int>(row / kAtomRows % 2);
  }

 private:
  // Strips of half of the group that this one is in.
  static constexpr int half_group(int strip, int strips) noexcept {
    const int left = strips - strip / kGroupStrips * kGroupStrips;
    return (left < kGroupStrips ? left : kGroupStrips) / 2;
  }
};

/// The pack kernels' work on the host, one expert: gate and up [F, D], down [D, F], bf16 as uint16_t, row-major.
void moe_pack_w13(const uint16_t* gate, const uint16_t* up, int64_t width, int64_t ffn_width,
                  uint16_t* packed) noexcept;
void moe_pack_w2(const uint16_t* down, int64_t width, int64_t ffn_width, uint16_t* packed) noexcept;

/// The same on the device, from and to device memory; `stream` is a cudaStream_t. Only in builds with CUDA.
void moe_pack_w13_on_device(const void* gate, const void* up, int64_t width, int64_t ffn_width,
                            void* packed, void* stream) noexcept;
void moe_pack_w2_on_device(const void* down, int64_t width, int64_t ffn_width, void* packed,
                           void* stream) noexcept;
/// Places the packed matrices [rows, inputs], both padded, of `experts` experts, which follow each other, by the sides of the L2, on the
/// device. `scratch`: of one matrix. Does nothing without sides.
void moe_place_on_device(void* packed, int64_t experts, int64_t rows, int64_t inputs,
                         const L2Sides& sides, void* scratch, void* stream) noexcept;
/// A gate [E, D] in f32 as [D, E], on the device: kernels that have some inputs of all experts read lines then.
void gate_by_input_on_device(const float* gate, int64_t experts, int64_t width, float* by_input,
                             void* stream) noexcept;
/// The gate for rows that another norm has weighted, both norms [D]: `to` [E, D] in bf16 is gate * gate_norm / row_norm; 0 where a row
/// has nothing.
void gate_of_other_norm_on_device(const float* gate, const float* gate_norm, const float* row_norm,
                                  int64_t experts, int64_t width, void* to, void* stream) noexcept;

}  // namespace switchyard
