// SPDX-License-Identifier: Apache-2.0
// What the programs that measure kernels share: device memory that is freed together, and an end with a message when a call fails.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

namespace switchyard::bench {

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               cudaGetErrorString(error));
  std::exit(1);
}

class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (void* block : blocks_) cudaFree(block);
  }
  template <class T>
  T* take(int64_t count) {
    void* block = nullptr;
    must(cudaMalloc(&block, std::max<size_t>(static_cast<size_t>(count) * sizeof(T), 16)),
         "cudaMalloc");
    blocks_.push_back(block);
    return static_cast<T*>(block);
  }
  size_t num_blocks() const { return blocks_.size(); }

 private:
  std::vector<void*> blocks_;
};

}  // namespace switchyard::bench
