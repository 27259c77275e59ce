// SPDX-License-Identifier: Apache-2.0
#include "gpu_weights.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/l2_memory.h"

namespace switchyard::bench {
namespace {

template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return *std::move(result);
}

}  // namespace

WeightMemory::WeightMemory(int64_t bytes, bool by_sides) {
  CudaStream stream = must(CudaStream::open(0));
  memory_ = std::make_unique<L2Memory>(must(by_sides ? L2Memory::allocate(bytes, "weights", stream)
                                                     : L2Memory::allocate_plain(bytes, "weights")));
}
WeightMemory::~WeightMemory() = default;
char* WeightMemory::data() const { return reinterpret_cast<char*>(memory_->data()); }
const L2Sides& WeightMemory::sides() const { return memory_->sides(); }

}  // namespace switchyard::bench
