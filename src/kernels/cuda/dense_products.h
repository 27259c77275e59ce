// SPDX-License-Identifier: Apache-2.0
// Which dense product runs: the skinny kernel for few tokens, cuBLASLt or the tiles of dense_tile.h for many, the plain kernel where none
// of these can.
#pragma once
#include <memory>
#include <string>

#include "kernels/cuda/dense_library.h"

namespace switchyard::cuda {

/// The library chooses an algorithm for each number of tokens that it sees, which takes a while; so it sees few numbers.
constexpr int64_t padded_tokens(int64_t tokens) noexcept {
  const int64_t step = tokens <= 64 ? 16 : 64;
  return (tokens + step - 1) / step * step;
}

class DenseProducts {
 public:
  /// With `deterministic`, a token's bits do not depend on how many there are: no library, the skinny kernel in turns.
  /// `note` says what is missing, if anything.
  static DenseProducts open(bool deterministic, std::string& note);

  /// x and y have room for padded_tokens(T) rows: what lies behind T rows may be read, and y's may be overwritten.
  void run(const Dense& args, StreamHandle stream) noexcept;
  /// The same to y_bf16, where dense_tile_rounded or the library does the product; else false, and nothing is queued. Half the bytes
  /// for what reads it.
  bool run_rounded(const Dense& args, StreamHandle stream) noexcept;

 private:
  bool deterministic_ = false;
  std::unique_ptr<DenseLibrary> library_;
};

}  // namespace switchyard::cuda
