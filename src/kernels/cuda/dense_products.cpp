// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/dense_products.h"

#include <algorithm>

#include "kernels/cuda/dense_tile.h"
#include "tensor/dtype.h"

namespace switchyard::cuda {
namespace {

// The skinny kernel, 32 tokens at a time.
void run_in_turns(Dense args, StreamHandle stream) {
  constexpr int64_t kTurn = 32;
  const int64_t total = args.tokens, row_bytes = args.k * dtype_bytes(args.dtype);
  for (int64_t done = 0; done < total; done += kTurn) {
    args.tokens = std::min(kTurn, total - done);
    dense_skinny(args, stream);
    args.x = static_cast<const std::byte*>(args.x) + kTurn * row_bytes;
    args.y += kTurn * args.n;
  }
}

// Beyond a tile of tokens the library is as fast, as long as it may be used.
constexpr int64_t kTile = 8;

bool skinny_can(Dense args) {
  args.tokens = 1;
  return dense_skinny_accepts(args);
}

}  // namespace

DenseProducts DenseProducts::open(bool deterministic, std::string& note) {
  DenseProducts products;
  products.deterministic_ = deterministic;
  if (!deterministic) products.library_ = DenseLibrary::open(note);
  return products;
}

void DenseProducts::run(const Dense& args, StreamHandle stream) noexcept {
  if (args.tokens == 0) return;
  if (dense_few_accepts(args)) return dense_few(args, stream);
  if (dense_skinny_accepts(args) && (args.tokens <= kTile || library_ == nullptr)) {
    return dense_skinny(args, stream);
  }
  if (!deterministic_ && dense_tile_added(args, stream)) return;
  Dense padded = args;
  padded.tokens = padded_tokens(args.tokens);
  if (library_ != nullptr && library_->run(padded, stream)) return;
  if (skinny_can(args)) return run_in_turns(args, stream);
  dense_plain(args, stream);
}

bool DenseProducts::run_rounded(const Dense& args, StreamHandle stream) noexcept {
  if (deterministic_ || args.tokens <= kTile || args.bias != nullptr) return false;
  if (dense_tile_rounded(args, stream)) return true;
  if (library_ == nullptr) return false;
  Dense padded = args;
  padded.tokens = padded_tokens(args.tokens);
  return library_->run(padded, stream);
}

}  // namespace switchyard::cuda
