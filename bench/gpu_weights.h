// SPDX-License-Identifier: Apache-2.0
// Device memory for weights, placed by the sides of the L2 where they are known; free of headers that the device's compiler refuses.
#pragma once
#include <cstdint>
#include <memory>

#include "kernels/ops/l2_sides.h"

namespace switchyard {
class L2Memory;
}

namespace switchyard::bench {

/// Of device 0. Ends the program with a message when there is no room.
class WeightMemory {
 public:
  /// `by_sides`: placed where the sides of the L2 are known.
  WeightMemory(int64_t bytes, bool by_sides);
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  char* data() const;
  const L2Sides& sides() const;

 private:
  std::unique_ptr<L2Memory> memory_;
};

}  // namespace switchyard::bench
