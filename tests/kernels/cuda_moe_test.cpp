// SPDX-License-Identifier: Apache-2.0
// Every entry of the device MoE layer against plain f64, over the shared cases, with poisoned outputs and guarded arrays.
// Needs a CUDA device; without one every test says that it was skipped.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "cases/moe_ffn.h"
#include "cases/tolerances.h"
#include "kernels/cuda_route_oracle.h"
#include "kernels/select.h"

namespace switchyard {
namespace {

using testing::cuda_error;
using testing::expect_picks;
using testing::expect_rows_follow_picks;
using testing::MoeLayerOnDevice;
using testing::some_sides;

class CudaMoe : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    sm_ = testing::cuda_sm(why);
    if (sm_ == 0) GTEST_SKIP() << "no CUDA device: " << why;
  }

  enum class Which { all, those_that_route, those_that_do_not };

  // All entries that run here and accept the layer; calls body(entry).
  template <class Body>
  void for_each_entry(const MoeLayerOnDevice& layer, const Body& body, Which which = Which::all) {
    for (const MoeFfn::Kernel& entry : moe_ffn_kernels()) {
      if (sm_ < entry.sm_min || sm_ > entry.sm_max) continue;
      if (which == (entry.routes ? Which::those_that_do_not : Which::those_that_route)) continue;
      if (entry.refusal(layer.problem) != nullptr) continue;
      if (!entry.suits(layer.problem, layer.tokens)) continue;
      SCOPED_TRACE(entry.name);
      body(entry);
    }
  }

  void check_case(const cases::MoeFfnCase& which, int& entries, Which of = Which::all);

  int sm_ = 0;
};

double as_double(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

struct Error {
  double relative = 0, largest = 0;
};
// Of what was added to the residual stream.
Error error_of(const std::vector<float>& y, const std::vector<double>& expected,
               const std::vector<float>& before) {
  double wrong = 0, all = 0, largest = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double difference = double{y[i]} - expected[i], added = expected[i] - double{before[i]};
    // Written so that a NaN counts as infinitely wrong.
    if (!(std::abs(difference) <= largest)) largest = std::abs(difference);
    wrong += difference * difference;
    all += added * added;
  }
  const double mean = std::sqrt(all / static_cast<double>(std::max<size_t>(y.size(), 1)));
  return {all == 0 ? wrong : std::sqrt(wrong / all), mean == 0 ? largest : largest / mean};
}

// What next_x should be of y.
void expect_normed(const std::vector<uint16_t>& next, const std::vector<float>& y,
                   const std::vector<float>& weights, int64_t tokens) {
  const auto width = static_cast<int64_t>(weights.size());
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t d = 0; d < width; ++d) squares += std::pow(y[t * width + d], 2);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (int64_t d = 0; d < width; ++d) {
      const double value = double{y[t * width + d]} * inverse * double{weights[d]};
      ASSERT_NEAR(as_double(next[t * width + d]), value, std::abs(value) / 250 + 1e-30);
    }
  }
}

// The same call with weights that are placed by sides, twice, and then as before.
void expect_sides_change_nothing(MoeLayerOnDevice& layer, const MoeFfn::Kernel& entry,
                                 const std::vector<float>& y, const L2Sides& sides) {
  SCOPED_TRACE(sides.mask);
  layer.place_by(sides);
  for (int i = 0; i < 2; ++i) {
    layer.run(entry);
    EXPECT_EQ(layer.y.host(), y) << "placed, call " << i;
  }
  EXPECT_TRUE(layer.guards_are_intact());
  layer.place_by({});
  layer.run(entry);
  EXPECT_EQ(layer.y.host(), y) << "no longer placed";
}

// The case by every entry that takes it; `entries` counts them.
void CudaMoe::check_case(const cases::MoeFfnCase& which, int& entries, Which of) {
  SCOPED_TRACE(which.name);
  MoeLayerOnDevice layer(which, 42, sm_);
  const int64_t live = which.tokens - which.dead_tokens;
  const auto check = [&](const MoeFfn::Kernel& entry) {
    ++entries;
    layer.run(entry);
    ASSERT_EQ(cuda_error(), "");
    const std::vector<double> expected = layer.reference();
    ASSERT_EQ(cuda_error(), "");
    expect_picks(layer.routing, layer.problem.rule, layer.logits_before, {}, which.tokens, live);
    expect_rows_follow_picks(layer.routing, layer.problem.rule, which.tokens);
    const std::vector<float> y = layer.y.host();
    const Error error = error_of(y, expected, layer.y_before);
    const cases::Tolerance& allowed =
        cases::tolerance(which.top_k == 32 ? "moe_ffn_32_picks" : "moe_ffn", DType::bf16);
    EXPECT_LE(error.relative, allowed.relative_error);
    EXPECT_LE(error.largest, allowed.max_error);
    std::printf("  %-44s %-26s error %.2e, largest %.2e\n", which.name.data(), entry.name.data(),
                error.relative, error.largest);
    std::fflush(stdout);
    EXPECT_TRUE(layer.guards_are_intact());
    if (which.next_norm) expect_normed(layer.next_x.host(), y, layer.norm_weights, which.tokens);
    expect_sides_change_nothing(layer, entry, y, some_sides());
  };
  for_each_entry(layer, check, of);
}

TEST_F(CudaMoe, EveryEntryGivesTheReference) {
  for (const cases::MoeFfnCase& which : cases::moe_ffn_cases()) {
    int entries = 0;
    check_case(which, entries);
    EXPECT_GE(entries, 1) << "no entry takes " << which.name;
  }
}

// What scripts/gpu_sanitize.txt runs: every tile of every entry but 128 x 128 of sm90a, as small as it can be.
TEST_F(CudaMoe, SmallCasesOfEveryTile) {
  int entries = 0;
  for (const cases::MoeFfnCase& which : cases::moe_ffn_small_cases()) {
    check_case(which, entries, Which::those_that_do_not);
  }
  EXPECT_GE(entries, 1);
}

TEST_F(CudaMoe, SmallCasesOfTheSingleLaunch) {
  int entries = 0;
  for (const cases::MoeFfnCase& which : cases::moe_ffn_small_cases()) {
    check_case(which, entries, Which::those_that_route);
  }
  EXPECT_EQ(entries > 0, sm_ == 90);
}

TEST_F(CudaMoe, TheSameCallGivesTheSameBits) {
  using cases::Popularity;
  for (const auto& [tokens, experts, popularity] : {std::tuple{1, 64, Popularity::zipf},
                                                    {8, 64, Popularity::zipf},
                                                    {16, 64, Popularity::zipf},
                                                    {100, 64, Popularity::zipf},
                                                    {700, 64, Popularity::zipf},
                                                    {500, 64, Popularity::uneven},
                                                    {150, 8, Popularity::uneven}}) {
    SCOPED_TRACE(tokens);
    MoeLayerOnDevice layer({"repeat", tokens, experts, 8, 2048, 512, popularity}, 7, sm_);
    for_each_entry(layer, [&](const MoeFfn::Kernel& entry) {
      layer.run(entry);
      const std::vector<float> first = layer.y.host();
      for (int i = 0; i < 20; ++i) {
        layer.run(entry);
        ASSERT_EQ(layer.y.host(), first) << "repeat " << i;
      }
      for (const uint32_t mask : {0xab000U, 0x1000U, 0x17000U}) {
        expect_sides_change_nothing(layer, entry, first, some_sides(mask));
      }
    });
  }
  EXPECT_EQ(cuda_error(), "");
}

void expect_the_first_token_alike(MoeLayerOnDevice& layer, const MoeFfn::Kernel& entry,
                                  const std::vector<int64_t>& counts) {
  std::vector<float> first;
  for (const int64_t tokens : counts) {
    layer.tokens = tokens;
    if (!entry.suits(layer.problem, tokens)) continue;
    layer.live.set({static_cast<int32_t>(tokens)});
    layer.run(entry);
    std::vector<float> y = layer.y.host();
    y.resize(static_cast<size_t>(layer.problem.width));
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << tokens << " tokens";
  }
}

// The first token of a batch, alone and among others.
TEST_F(CudaMoe, ATokenDoesNotDependOnItsBatch) {
  for (const int64_t ffn_width : {256, 2560}) {
    const cases::MoeFfnCase many = {"many", 600, 32, 4, 2048, ffn_width, cases::Popularity::zipf};
    MoeLayerOnDevice layer(many, 3, sm_);
    for (const MoeFfn::Kernel& entry : moe_ffn_kernels()) {
      if (sm_ < entry.sm_min || sm_ > entry.sm_max || entry.refusal(layer.problem)) continue;
      SCOPED_TRACE(entry.name);
      expect_the_first_token_alike(layer, entry, {1, 2, 5, 8, 11, 16, 60, 200, 600});
    }
  }
  EXPECT_EQ(cuda_error(), "");
}

// The same where items of the second product are few and long: an H200 does them in parts at 550 tokens of five experts, and at 900
// and 1100 tokens of the wide one, else whole.
TEST_F(CudaMoe, ATokenDoesNotDependOnParts) {
  using Counts = std::vector<int64_t>;
  for (const auto& [which, counts] :
       {std::pair{cases::MoeFfnCase{"long", 550, 5, 2, 4096, 4096}, Counts{17, 200, 550}},
        {{"longer", 1100, 1, 1, 7168, 8192}, {17, 200, 900, 1100}}}) {
    SCOPED_TRACE(which.name);
    MoeLayerOnDevice layer(which, 5, sm_);
    for (const MoeFfn::Kernel& entry : moe_ffn_kernels()) {
      if (sm_ < entry.sm_min || sm_ > entry.sm_max || entry.refusal(layer.problem)) continue;
      SCOPED_TRACE(entry.name);
      expect_the_first_token_alike(layer, entry, counts);
    }
  }
  EXPECT_EQ(cuda_error(), "");
}

// Across all numbers of tokens, and so across tiles: what SWITCHYARD_DETERMINISTIC=1 promises for a layer.
TEST_F(CudaMoe, ADeterministicTokenNeverDependsOnItsBatch) {
  for (const auto& [experts, top_k, ffn_width] :
       {std::tuple{32, 4, int64_t{256}}, {8, 2, int64_t{1024}}, {64, 8, int64_t{192}}}) {
    SCOPED_TRACE(experts);
    const cases::MoeFfnCase many = {
        "many", 3000, experts, top_k, 512, ffn_width, cases::Popularity::zipf};
    MoeLayerOnDevice layer(many, 3, sm_);
    layer.problem.deterministic = true;
    std::vector<float> first;
    for (const int64_t tokens : {1, 2, 5, 8, 11, 16, 60, 64, 65, 200, 600, 1400, 3000}) {
      layer.tokens = tokens;
      const MoeFfn::Kernel* entry = choose_moe_ffn(layer.problem, sm_, tokens);
      ASSERT_NE(entry, nullptr);
      layer.live.set({static_cast<int32_t>(tokens)});
      layer.run(*entry);
      std::vector<float> y = layer.y.host();
      y.resize(512);
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << tokens << " tokens by " << entry->name;
    }
  }
  EXPECT_EQ(cuda_error(), "");
}

// Picks from elsewhere, some of them dropped, give what the same picks from logits give.
TEST_F(CudaMoe, PicksCanBeGiven) {
  // The wide one fits into shared memory by itself, but not beside the lists of a kernel for more tokens.
  for (const auto& [tokens, width] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {1, 512}, {7, 512}, {16, 512}, {64, 512}, {65, 512}, {300, 512}, {1, 7168}}) {
    SCOPED_TRACE(tokens);
    MoeLayerOnDevice layer({"given", tokens, 32, 4, width, 131072 / width, cases::Popularity::zipf},
                           17, sm_);
    for_each_entry(layer, [&](const MoeFfn::Kernel& entry) {
      layer.picks_are_given = false;
      layer.run(entry);
      const std::vector<float> routed = layer.y.host();
      layer.picks_are_given = true;
      layer.run(entry);
      EXPECT_EQ(layer.y.host(), routed);
      std::vector<int32_t> expert = layer.routing.expert.host();
      for (size_t i = 0; i < expert.size(); i += 3) expert[i] = -1;
      layer.routing.expert.set(expert);
      layer.run(entry);
      const std::vector<double> expected = layer.reference();
      const Error error = error_of(layer.y.host(), expected, layer.y_before);
      EXPECT_LE(error.relative, cases::tolerance("moe_ffn", DType::bf16).relative_error);
      EXPECT_EQ(layer.routing.expert.host(), expert);
      expect_rows_follow_picks(layer.routing, layer.problem.rule, tokens);
      EXPECT_TRUE(layer.guards_are_intact());
    });
  }
  EXPECT_EQ(cuda_error(), "");
}

// Stops for measurements leave y alone, and the counters fit for the next call.
TEST_F(CudaMoe, ACallCanStopBetweenItsParts) {
  MoeLayerOnDevice layer({"stop", 90, 32, 4, 512, 256}, 19, sm_);
  for_each_entry(layer, [&](const MoeFfn::Kernel& entry) {
    layer.run(entry);
    const std::vector<float> whole = layer.y.host();
    for (const MoeFfn::Stop stop : {MoeFfn::Stop::after_up, MoeFfn::Stop::after_down}) {
      layer.y.set(layer.y_before);
      MoeFfn::Args args = layer.args();
      args.stop = stop;
      run_moe_layer(entry, layer.problem, args, nullptr);
      EXPECT_EQ(layer.y.host(), layer.y_before);
      layer.run(entry);
      EXPECT_EQ(layer.y.host(), whole);
    }
  });
  EXPECT_EQ(cuda_error(), "");
}

// What is in the workspace lies closer for fewer tokens, and is let go of: nothing of one call may reach the next.
TEST_F(CudaMoe, CallsOfOtherSizesShareAWorkspace) {
  MoeLayerOnDevice layer({"shared", 600, 16, 4, 512, 512, cases::Popularity::uneven}, 31, sm_);
  const auto call = [&](const MoeFfn::Kernel& entry, int64_t tokens) {
    layer.tokens = tokens;
    layer.live.set({static_cast<int32_t>(tokens)});
    layer.y.set(layer.y_before);
    run_moe_layer(entry, layer.problem, layer.args(), nullptr);
    return layer.y.host();
  };
  for (const MoeFfn::Kernel& entry : moe_ffn_kernels()) {
    if (sm_ < entry.sm_min || sm_ > entry.sm_max || entry.routes) continue;
    SCOPED_TRACE(entry.name);
    std::map<int64_t, std::vector<float>> alone;
    for (const int64_t tokens : {600, 130, 41, 3}) {
      layer.workspace.poison();
      alone[tokens] = call(entry, tokens);
    }
    for (const int64_t tokens : {600, 41, 600, 130, 3, 130, 600}) {
      EXPECT_EQ(call(entry, tokens), alone[tokens]) << tokens << " tokens";
    }
    EXPECT_TRUE(layer.guards_are_intact());
  }
  EXPECT_EQ(cuda_error(), "");
}

TEST_F(CudaMoe, AGraphOfALayerCanBeReplayed) {
  for (const int64_t tokens : {4, 90}) {
    MoeLayerOnDevice layer({"graph", tokens, 32, 4, 1024, 256}, 11, sm_);
    for_each_entry(layer, [&](const MoeFfn::Kernel& entry) {
      layer.run(entry);
      const std::vector<float> once = layer.y.host();
      layer.y.set(layer.y_before);
      ASSERT_TRUE(testing::replay_as_graph(
          [&](void* stream) { run_moe_layer(entry, layer.problem, layer.args(), stream); }, 1));
      EXPECT_EQ(layer.y.host(), once);
      // Each replay adds the same again.
      layer.y.set(layer.y_before);
      ASSERT_TRUE(testing::replay_as_graph(
          [&](void* stream) { run_moe_layer(entry, layer.problem, layer.args(), stream); }, 3));
      const std::vector<float> thrice = layer.y.host();
      for (size_t i = 0; i < once.size(); ++i) {
        const float added = once[i] - layer.y_before[i];
        ASSERT_NEAR(thrice[i], layer.y_before[i] + 3 * added, 1e-4);
      }
    });
  }
  EXPECT_EQ(cuda_error(), "");
}

TEST_F(CudaMoe, PackedOnTheDeviceAsOnTheHost) {
  for (const auto& [width, ffn_width] : {std::pair{64, 64}, {72, 40}, {200, 100}, {256, 192}}) {
    const int64_t count = int64_t{width} * ffn_width;
    testing::DeviceArray<uint16_t> gate(count), up(count), down(count);
    testing::fill_normals(gate.data(), count, 1, 1);
    testing::fill_normals(up.data(), count, 1, 2);
    testing::fill_normals(down.data(), count, 1, 3);
    testing::DeviceArray<uint16_t> w13(MoePack::w13_bytes(width, ffn_width) / 2);
    testing::DeviceArray<uint16_t> w2(MoePack::w2_bytes(width, ffn_width) / 2);
    moe_pack_w13_on_device(gate.data(), up.data(), width, ffn_width, w13.data(), nullptr);
    moe_pack_w2_on_device(down.data(), width, ffn_width, w2.data(), nullptr);
    std::vector<uint16_t> expected13(w13.size()), expected2(w2.size());
    moe_pack_w13(gate.host().data(), up.host().data(), width, ffn_width, expected13.data());
    moe_pack_w2(down.host().data(), width, ffn_width, expected2.data());
    EXPECT_EQ(w13.host(), expected13);
    EXPECT_EQ(w2.host(), expected2);
    EXPECT_TRUE(w13.bytes().guards_are_intact() && w2.bytes().guards_are_intact());
  }
  EXPECT_EQ(cuda_error(), "");
}

TEST_F(CudaMoe, AGateForTheRowsOfAnotherNorm) {
  constexpr int64_t kExperts = 5, kWidth = 96;
  std::vector<float> gate(kExperts * kWidth), gate_norm(kWidth), row_norm(kWidth);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<float>(i % 7) - 2.75f;
  for (size_t d = 0; d < row_norm.size(); ++d) {
    gate_norm[d] = 0.5f + static_cast<float>(d % 3);
    row_norm[d] = d % 5 == 0 ? 0.0f : 1.25f + static_cast<float>(d % 4);
  }
  testing::DeviceArray<float> gates(kExperts * kWidth), gate_norms(kWidth), row_norms(kWidth);
  testing::DeviceArray<uint16_t> to(kExperts * kWidth);
  gates.set(gate);
  gate_norms.set(gate_norm);
  row_norms.set(row_norm);
  gate_of_other_norm_on_device(gates.data(), gate_norms.data(), row_norms.data(), kExperts, kWidth,
                               to.data(), nullptr);
  const std::vector<uint16_t> found = to.host();
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t d = i % kWidth;
    const float expected = row_norm[d] == 0 ? 0.0f : gate[i] * gate_norm[d] / row_norm[d];
    const auto value = std::bit_cast<float>(uint32_t{found[i]} << 16);
    ASSERT_NEAR(value, expected, std::abs(expected) / 256)
        << "expert " << i / kWidth << ", input " << d;
  }
  EXPECT_TRUE(to.bytes().guards_are_intact());
  EXPECT_EQ(cuda_error(), "");
}

// Needs no device.
TEST(CudaMoeEntries, CanBePinned) {
  MoeFfn::Problem problem;
  problem.rule.experts = 8;
  problem.rule.top_k = 2;
  problem.width = 128;
  problem.ffn_width = 64;
  problem.max_tokens = 100;
  const auto pinned = [&](const char* pin, int sm) {
    setenv("SWITCHYARD_KERNEL", pin, 1);
    auto found = kernels::pinned_moe_ffn(problem, sm);
    unsetenv("SWITCHYARD_KERNEL");
    return found;
  };
  EXPECT_EQ(kernels::pinned_moe_ffn(problem, 90).value(), nullptr);
  EXPECT_EQ(pinned("grouped_gemm=ref", 90).value(), nullptr);
  EXPECT_EQ(pinned("moe_ffn=sm80", 90).value()->name, "moe_ffn.cuda.sm80");
  EXPECT_EQ(pinned("grouped_gemm=ref,moe_ffn=cuda.sm90a", 90).value()->name, "moe_ffn.cuda.sm90a");
  const auto expect_error = [&](const char* pin, int sm, const char* words) {
    const auto found = pinned(pin, sm);
    ASSERT_FALSE(found.ok()) << pin;
    EXPECT_NE(found.error().message.find(words), std::string::npos) << found.error().message;
  };
  expect_error("moe_ffn=sm70", 90, "it has moe_ffn.cuda.sm90a_small");
  expect_error("moe_ffn=sm90a", 80, "not for sm_80");
  expect_error("moe_ffn=sm90a_small", 90, "1 to 100 tokens");
  expect_error("experts=sm90a", 90, "OP one of");
  problem.weight = DType::f32;
  expect_error("moe_ffn=sm80", 90, "bf16");
}

// Needs no device: a refusal is said before anything runs.
TEST(CudaMoeEntries, RefuseWhatTheyCannotDo) {
  MoeFfn::Problem good;
  good.rule.experts = 8;
  good.rule.top_k = 2;
  good.width = 128;
  good.ffn_width = 64;
  good.max_tokens = 4;
  for (const MoeFfn::Kernel& entry : moe_ffn_kernels()) {
    SCOPED_TRACE(entry.name);
    EXPECT_EQ(entry.refusal(good), nullptr);
    MoeFfn::Problem bad = good;
    bad.width = 60;
    EXPECT_NE(entry.refusal(bad), nullptr);
    bad = good;
    bad.weight = DType::f32;
    EXPECT_NE(entry.refusal(bad), nullptr);
    bad = good;
    bad.rule.experts = 513;
    EXPECT_NE(entry.refusal(bad), nullptr);
    bad = good;
    bad.rule.top_k = 9;
    EXPECT_NE(entry.refusal(bad), nullptr);
    bad = good;
    bad.ffn_width = 0;
    EXPECT_NE(entry.refusal(bad), nullptr);
  }
}

}  // namespace
}  // namespace switchyard
