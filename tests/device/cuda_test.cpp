// SPDX-License-Identifier: Apache-2.0
// Without CUDA, or without its driver, the program runs and says what is missing.
#include <gtest/gtest.h>

#include "base/text_checks.h"
#include "device/device.h"

namespace switchyard {
namespace {

TEST(Cuda, ListsDevicesOrSaysWhatIsMissing) {
  const Result<std::vector<DeviceFacts>> devices = cuda_devices();
  if (!devices.ok()) {
    EXPECT_EQ(devices.error().code, Code::unavailable);
    const bool built = devices.error().message.find("built without") == std::string::npos;
    EXPECT_TRUE(has(devices.error().message, built ? "driver" : "-DSWITCHYARD_CUDA=ON"));
    return;
  }
  for (const DeviceFacts& device : *devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_GT(device.num_multiprocessors, 0);
  }
}

TEST(Stream, CarriesItsParts) {
  Pool pool({.num_threads = 1});
  Tracer tracer;
  const Stream stream({}, pool, &tracer);
  EXPECT_EQ(&stream.pool(), &pool);
  EXPECT_EQ(stream.tracer(), &tracer);
  EXPECT_EQ(stream.device(), DeviceId{});
}

}  // namespace
}  // namespace switchyard
