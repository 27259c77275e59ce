// SPDX-License-Identifier: Apache-2.0
// Tests of what only devices of sm_90 run; skipped elsewhere, with the reason.
#pragma once
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda_memory.h"

namespace switchyard::testing {

class HopperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const int sm = cuda_sm(why);
    if (sm == 0) GTEST_SKIP() << "no CUDA device: " << why;
    if (sm != 90) GTEST_SKIP() << "for sm_90 alone";
  }
};

}  // namespace switchyard::testing
