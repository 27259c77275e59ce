// SPDX-License-Identifier: Apache-2.0
// Names of devices and of geometries.
#include "model/devices.h"

#include <gtest/gtest.h>

#include "model/geometries.h"

namespace switchyard::model {
namespace {

TEST(Devices, NamesAreParsed) {
  EXPECT_EQ(*parse_device("cpu"), DeviceId{});
  EXPECT_EQ(*parse_device("cuda"), (DeviceId{DeviceId::Kind::cuda, 0}));
  EXPECT_EQ(*parse_device("cuda:3"), (DeviceId{DeviceId::Kind::cuda, 3}));
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:999", ":0"}) {
    const auto device = parse_device(wrong);
    ASSERT_FALSE(device.ok()) << wrong;
    EXPECT_NE(device.error().message.find("cuda:N"), std::string::npos);
  }
}

TEST(Devices, TheHostOffersWhatItHas) {
  EXPECT_EQ(*find_device({})->available_bytes(0, 12345), 12345);
}

// Sources: the models' cards.
TEST(Geometries, AreTheModelsTheyAreNamedAfter) {
  const auto billions = [](const char* name) {
    const auto config = read_geometry(name);
    EXPECT_TRUE(config.ok()) << config.error().message;
    const ParameterCount count = count_parameters(*config);
    return std::pair(static_cast<double>(count.total) * 1e-9,
                     static_cast<double>(count.active) * 1e-9);
  };
  const auto [qwen, qwen_active] = billions("qwen3-30b-a3b");
  EXPECT_NEAR(qwen, 30.5, 0.1);
  EXPECT_NEAR(qwen_active, 3.3, 0.4);
  const auto [olmoe, olmoe_active] = billions("olmoe-1b-7b");
  EXPECT_NEAR(olmoe, 6.9, 0.1);
  EXPECT_NEAR(olmoe_active, 1.3, 0.2);
  const auto [mixtral, mixtral_active] = billions("mixtral-8x7b");
  EXPECT_NEAR(mixtral, 46.7, 0.1);
  EXPECT_NEAR(mixtral_active, 12.9, 0.2);
  const auto unknown = read_geometry("gpt");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("olmoe-1b-7b"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::model
