// SPDX-License-Identifier: Apache-2.0
// The exchange of one rank: no wire, only the permutation.
#pragma once
#include <memory>

#include "base/result.h"
#include "kernels/ops/grouped_gemm.h"
#include "moe/exchange/exchange.h"

namespace switchyard::moe {

struct LocalExchangeSpec {
  int groups = 1, top_k = 1;
  int64_t width = 0, max_rows = 0;
  RowLayout layout = RowLayout::rows_f32;  ///< that the experts read
};
Result<std::unique_ptr<Exchange>> make_local_exchange(const LocalExchangeSpec& spec);

}  // namespace switchyard::moe
