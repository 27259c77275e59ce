// SPDX-License-Identifier: Apache-2.0
// Built in place of cuda.cpp where no CUDA toolkit was found or wanted.
#include "device/device.h"

namespace switchyard {

Result<std::vector<DeviceFacts>> cuda_devices() {
  return fail(Code::unavailable, "built without CUDA: configure with -DSWITCHYARD_CUDA=ON");
}

}  // namespace switchyard
