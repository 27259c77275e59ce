// SPDX-License-Identifier: Apache-2.0
// Values that carry a tag in one 64-bit word: whoever finds the tag has the value, without a fence and without a second way to
// memory. A fence would also wait for every bulk copy that is on its way.
//   word  value in the low half, tag in the high half; one 64-bit access is never torn (PTX ISA 9.0, "Memory Consistency Model")
// A tag must not have stood in the word lately (what is old must be told from what is new): the words are memory of their own, zero at first, and tags count calls.
#pragma once
#include <cstdint>

namespace switchyard::cuda {

__device__ __forceinline__ void store_tagged(uint64_t* to, uint32_t value, uint32_t tag) {
  const uint64_t word = uint64_t{tag} << 32 | value;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t read_tagged(const uint64_t* from) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}

struct TaggedPair {
  uint64_t first, second;
};
/// Two words that follow each other, aligned to 16 bytes; each is whole, but they may be of different times.
__device__ __forceinline__ TaggedPair read_tagged_pair(const uint64_t* from) {
  TaggedPair pair;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(from)
               : "memory");
  return pair;
}

}  // namespace switchyard::cuda
