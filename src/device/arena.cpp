// SPDX-License-Identifier: Apache-2.0
// The arena is one Storage for life.
#include "device/arena.h"

namespace switchyard {

Result<Arena> Arena::create(int64_t size_bytes) {
  Arena arena;
  SWITCHYARD_ASSIGN(arena.storage_, Storage::allocate(size_bytes));
  return arena;
}

}  // namespace switchyard
