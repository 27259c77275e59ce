// SPDX-License-Identifier: Apache-2.0
// Built in place of the other files of this folder where no CUDA toolkit was found or wanted.
#include "model/devices.h"

namespace switchyard::model {

Result<std::unique_ptr<Model>> load_on_cuda(const std::string&, const ModelConfig&,
                                            const LoadOptions&, Stream) {
  return fail(Code::unavailable, "built without CUDA: configure with -DSWITCHYARD_CUDA=ON");
}

int64_t cuda_attention_bytes(const ModelConfig&, const LoadOptions&) { return 0; }

Result<double> measure_cuda_read_gbps(int, Pool&) {
  return fail(Code::unavailable, "built without CUDA: configure with -DSWITCHYARD_CUDA=ON");
}

}  // namespace switchyard::model
