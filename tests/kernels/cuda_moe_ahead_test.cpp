// SPDX-License-Identifier: Apache-2.0
// Weights that are asked for before it is known which experts have tokens (kernels/cuda/moe_ffn_sm90a_ahead.cuh).
#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/cuda/moe_entries.h"
#include "kernels/cuda_hopper.h"
#include "kernels/cuda_moe_layer.h"

namespace switchyard {
namespace {

using testing::MoeLayerOnDevice;

class CudaAhead : public testing::HopperTest {
 protected:
  static const MoeFfn::Kernel& entry(std::string_view name) {
    const auto all = moe_ffn_kernels();
    return *std::find_if(all.begin(), all.end(),
                         [&](const auto& each) { return each.name == name; });
  }
  const MoeFfn::Kernel& kernel_ = entry("moe_ffn.cuda.sm90a");
};

TEST_F(CudaAhead, TheGateAsksWhereItLeavesNoRoom) {
  MoeLayerOnDevice layer({"asks", 512, 64, 8, 512, 256}, 3, 90);
  MoeFfn::Args args = layer.args();
  const auto first = [&] { return cuda::first_weights(kernel_, layer.problem, args); };
  EXPECT_EQ(first().data, nullptr) << "routing in launches of its own leaves room";
  args.routed = true;
  EXPECT_EQ(first().data, args.w13);
  EXPECT_EQ(first().bytes, layer.w13.size());
  EXPECT_EQ(cuda::first_weights(entry("moe_ffn.cuda.sm80"), layer.problem, args).data, nullptr);
  args.tokens = 64;
  EXPECT_EQ(first().data, nullptr) << "the gate of few tokens leaves room";
  args.tokens = 512;
  args.rows = 100;
  EXPECT_EQ(first().data, nullptr) << "many experts have no rows";
}

// Routed elsewhere, as by a gate's launch, so that a few blocks ask for all shares: fewer than the weights have, and more; the 128-row
// tile; a last group of strips that is no whole one.
TEST_F(CudaAhead, SharesThatAreTakenChangeNoBits) {
  for (const cases::MoeFfnCase& which :
       {cases::MoeFfnCase{"fewer", 512, 64, 8, 512, 768, cases::Popularity::zipf},
        {"more", 512, 16, 4, 512, 256},
        {"low", 500, 64, 2, 512, 256},
        {"odd", 470, 24, 4, 384, 320}}) {
    SCOPED_TRACE(which.name);
    MoeLayerOnDevice layer(which, 23, 90);
    for (const L2Sides& sides : {L2Sides{}, testing::some_sides()}) {
      layer.place_by(sides);
      layer.run(kernel_);
      const std::vector<float> alone = layer.y.host();
      MoeFfn::Args args = layer.args();
      args.routed = true;
      ASSERT_NE(cuda::first_weights(kernel_, layer.problem, args).data, nullptr);
      for (int call = 0; call < 3; ++call) {
        layer.y.set(layer.y_before);
        run_moe_layer(kernel_, layer.problem, args, nullptr);
        EXPECT_EQ(layer.y.host(), alone);
      }
      EXPECT_TRUE(layer.guards_are_intact());
      // Counters too, or the next call would ask for nothing.
      std::vector<int32_t> words(MoeFfn::kSyncWords);
      layer.sync.download(words.data(), layer.sync.size());
      EXPECT_EQ(words, std::vector<int32_t>(MoeFfn::kSyncWords));
    }
  }
  EXPECT_EQ(testing::cuda_error(), "");
}

}  // namespace
}  // namespace switchyard
