// SPDX-License-Identifier: Apache-2.0
// Built in place of bench_moe_cuda*.cpp where no CUDA toolkit was found or wanted.
#include "cli/bench_moe_cuda.h"

namespace switchyard::cli {

Status bench_moe_on_cuda(const std::vector<MoeShape>&, const MoeBenchOptions&, const std::string&,
                         int, Pool&, const MoeRowSink&) {
  return fail(Code::unavailable, "built without CUDA: configure with -DSWITCHYARD_CUDA=ON");
}

}  // namespace switchyard::cli
