// SPDX-License-Identifier: Apache-2.0
// Faults that engines of the field shipped, as tests: what went in, and what must come out. Each names the reports that
// it stands for. Those that need several ranks are not here; the capacity formulas are in capacity_test.cpp.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "device/cpu_features.h"
#include "kernels/select.h"
#include "moe/baseline/routed_layer.h"
#include "moe/layer.h"
#include "moe/select_run.h"
#include "tensor/compare.h"

namespace switchyard::moe {
namespace {

constexpr int64_t kWidth = 64, kFfn = 40;
constexpr int kExperts = 4, kTopK = 2;

/// A routing that is given pick by pick, all of equal weight.
struct Given {
  std::vector<int32_t> expert, load;
  std::vector<float> weight;

  explicit Given(std::vector<int32_t> picks)
      : expert(std::move(picks)), load(kExperts, 0), weight(expert.size(), 0.5f) {
    for (const int32_t e : expert) {
      if (e >= 0) ++load[static_cast<size_t>(e)];
    }
  }
  int64_t tokens() const { return static_cast<int64_t>(expert.size()) / kTopK; }
  Routing routing() {
    const TensorView loads = TensorView::of(load.data(), {kExperts});
    return {TensorView::of(expert.data(), {tokens(), kTopK}),
            TensorView::of(weight.data(), {tokens(), kTopK}),
            loads,
            loads,
            {}};
  }
};

std::vector<float> normal_values(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = to_float(to_bf16(normal(random)));
  return values;
}

RoutedLayer routed_layer(DType dtype, int64_t max_tokens) {
  RoutedLayer layer = RoutedLayer::create({.num_slots = kExperts,
                                           .top_k = kTopK,
                                           .width = kWidth,
                                           .ffn_width = kFfn,
                                           .max_tokens = max_tokens,
                                           .max_capacity = 0,
                                           .naive = true,
                                           .weight = dtype})
                          .value();
  for (int e = 0; e < kExperts; ++e) {
    const auto seed = static_cast<uint32_t>(3 * e);
    const auto gate = normal_values(kFfn * kWidth, seed, 0.2f);
    const auto up = normal_values(kFfn * kWidth, seed + 1, 0.2f);
    const auto down = normal_values(kFfn * kWidth, seed + 2, 0.2f);
    layer.pack(e, TensorView::of(gate.data(), {kFfn, kWidth}),
               TensorView::of(up.data(), {kFfn, kWidth}),
               TensorView::of(down.data(), {kWidth, kFfn}));
  }
  return layer;
}

/// An arena of which every f32 and bf16 is NaN.
Arena poisoned_arena(int64_t bytes) {
  Arena arena = Arena::create(bytes).value();
  const auto all = arena.take<std::byte>(bytes);
  std::memset(all.data(), 0xFF, all.size());
  arena.reset();
  return arena;
}

std::vector<float> run(RoutedLayer& layer, Execution execution, Given& given, int threads,
                       Arena& arena) {
  Pool pool({.num_threads = threads, .pin = false});
  const std::vector<float> x = normal_values(given.tokens() * kWidth, 91);
  std::vector<float> y(x.size(), 0.0f);
  arena.reset();
  layer.forward(execution, x.data(), given.routing(), 0, y.data(), {Stream({}, pool), arena});
  return y;
}

// grouped_gemm#36, MSLK#158, vllm#39645: experts without tokens read or left what was in the buffers.
TEST(FieldCases, ExpertsWithoutTokensReadNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Given given({0, 2, 2, 0, 0, 2, 2, -1, -1, 2});  // counts 3, 0, 5, 0
    ASSERT_EQ(given.load, (std::vector<int32_t>{3, 0, 5, 0}));
    RoutedLayer layer = routed_layer(dtype, given.tokens());
    Arena arena = poisoned_arena(layer.room(2));
    const auto grouped = run(layer, Execution::grouped, given, 2, arena);
    const auto naive = run(layer, Execution::naive, given, 2, arena);
    for (const float value : grouped) ASSERT_TRUE(std::isfinite(value));
    const Comparison c = compare(grouped, naive);
    EXPECT_LE(c.relative_error, dtype == DType::f32 ? 1e-6 : 4e-3) << c.text();
  }
}

// transformers#43360, vllm#53440, #53257: the same batch gave other bits from run to run.
TEST(FieldCases, TheSameBatchGivesTheSameBitsAHundredTimes) {
  std::mt19937 random(7);
  std::vector<int32_t> picks;
  for (int t = 0; t < 67; ++t) {
    const auto first = static_cast<int32_t>(random() % kExperts);
    picks.push_back(first);
    picks.push_back((first + 1 + static_cast<int32_t>(random() % (kExperts - 1))) % kExperts);
  }
  Given given(picks);
  RoutedLayer layer = routed_layer(DType::bf16, given.tokens());
  Arena arena = poisoned_arena(layer.room(8));
  const auto once = run(layer, Execution::grouped, given, 1, arena);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(run(layer, Execution::grouped, given, 1 + i % 8, arena), once) << "run " << i;
  }
}

// vllm#42034, #35161, sglang#12701: picks of -1 were indexed, and a short call saw the tail of a longer one before it.
TEST(FieldCases, AShortCallSeesNothingOfALongerOne) {
  Given longer({0, 1, -1, 3, 2, -1, -1, -1}), shorter({-1, 2});
  RoutedLayer layer = routed_layer(DType::bf16, 4);
  Arena used = poisoned_arena(layer.room(2)), fresh = poisoned_arena(layer.room(2));
  const auto y = run(layer, Execution::grouped, longer, 2, used);
  for (int64_t d = 0; d < kWidth; ++d) EXPECT_EQ(y[static_cast<size_t>(3 * kWidth + d)], 0.0f);
  EXPECT_EQ(run(layer, Execution::grouped, shorter, 2, used),
            run(layer, Execution::grouped, shorter, 2, fresh));
}

// vllm#39391, sglang#30079, vllm-omni#7175: NaN, equal and masked logits gave ids out of range or twice.
TEST(FieldCases, NanEqualAndMaskedLogitsPickDistinctExperts) {
  const RouterSpec two{.num_experts = 8, .top_k = 2, .weigh = Weigh::renormalize};
  const Picks nan = select_picks(two, std::vector<float>(8, kNan));
  EXPECT_EQ(nan.expert, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(nan.weight, (std::vector<float>{0, 0}));
  EXPECT_EQ(nan.unusable_rows, 1);
  EXPECT_EQ(select_picks(two, std::vector<float>(8, 1.5f)).expert, (std::vector<int32_t>{0, 1}));
  RouterSpec three = two;
  three.top_k = 3;
  three.score = Score::sigmoid;
  three.selection_bias = true;
  std::vector<float> bias(8, -kInf);
  bias[2] = 0;
  SelectInput biased;
  biased.bias = bias.data();
  EXPECT_EQ(select_picks(three, std::vector<float>(8, 0.5f), biased).expert,
            (std::vector<int32_t>{2, 0, 1}));
}

// sglang#35535, #26845, #32963, vllm#37856: outputs were summed once for every rank, or the shared expert was halved.
// An expert that is the identity must give x, no more and no less: gate rows see a feature that is always 1.
struct Identity {
  std::vector<float> gate, up, down;
  explicit Identity(bool zero) : gate(kWidth * kWidth), up(kWidth * kWidth), down(kWidth * kWidth) {
    constexpr float kGate = 4;
    const float silu = kGate / (1 + std::exp(-kGate));
    for (int64_t i = 0; i < kWidth; ++i) {
      gate[static_cast<size_t>(i * kWidth)] = kGate;
      up[static_cast<size_t>(i * kWidth + i)] = 1 / silu;
      down[static_cast<size_t>(i * kWidth + i)] = zero ? 0.0f : 1.0f;
    }
  }
  void pack(Experts& experts, int slot) const {
    const TensorView rows = TensorView::of(up.data(), {kWidth, kWidth});
    experts.gate_up().pack(slot, TensorView::of(gate.data(), {kWidth, kWidth}), &rows);
    experts.down().pack(slot, TensorView::of(down.data(), {kWidth, kWidth}));
  }
};

TEST(FieldCases, IdentityExpertsGiveTheInputOnce) {
  constexpr int64_t kTokens = 9;
  std::vector<float> x = normal_values(kTokens * kWidth, 5);
  for (int64_t t = 0; t < kTokens; ++t) x[static_cast<size_t>(t * kWidth)] = 1;
  const auto gate = normal_values(kExperts * kWidth, 6);
  for (const bool routed : {true, false}) {
    Pool pool({.num_threads = 2, .pin = false});
    const Limits limits{kTokens, pool.num_threads()};
    Layer layer =
        Layer::create(
            {.router = {.num_experts = kExperts, .top_k = kTopK, .weigh = Weigh::renormalize},
             .width = kWidth,
             .ffn_width = kWidth,
             .shared_width = kWidth,
             .weight = DType::f32},
            limits)
            .value();
    layer.router().gate().pack(0, TensorView::of(gate.data(), {kExperts, kWidth}));
    for (int e = 0; e < kExperts; ++e) Identity(!routed).pack(layer.experts(), e);
    Identity(routed).pack(*layer.shared(), 0);
    Arena arena = poisoned_arena(layer.room(limits));
    std::vector<float> y(x.size(), 0.0f);
    layer.forward(x.data(), kTokens, y.data(), {Stream({}, pool), arena});
    const Comparison c = compare(y, x);
    EXPECT_LE(c.relative_error, 1e-6) << (routed ? "routed: " : "shared: ") << c.text();
  }
}

// sglang#4727, flashinfer#2642, TRT-LLM#15887, DLBlas#171: with 37,450 tokens, K 8 and width 7168, rows from 299,593 on
// lie beyond 2^31 elements. The array is an address range of which the touched pages alone exist.
class Beyond31Bits {
 public:
  static constexpr int64_t kRows = 299'600, kRowWidth = 7168;
  static_assert(kRows * kRowWidth > int64_t{1} << 31);

  Beyond31Bits() {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) values_ = static_cast<float*>(at);
  }
  ~Beyond31Bits() {
    if (values_ != nullptr) munmap(values_, kBytes);
  }
  Beyond31Bits(const Beyond31Bits&) = delete;
  Beyond31Bits& operator=(const Beyond31Bits&) = delete;

  bool exists() const { return values_ != nullptr; }
  float* row(int64_t r) { return values_ + r * kRowWidth; }
  const float* begin() const { return values_; }

 private:
  static constexpr size_t kBytes = size_t{kRows} * kRowWidth * sizeof(float);
  float* values_ = nullptr;
};

template <class Op, class Test>
void for_each_runnable(Test&& test) {
  for (const Kernel<Op>& kernel : kernels::table<Op>()) {
    const uint64_t needed = kernel.needs.cpu_features;
    if ((cpu_features().usable & needed) != needed) continue;
    SCOPED_TRACE(kernel.name);
    test(kernel);
  }
}

TEST(FieldCases, RowsBeyondTwoToThe31ElementsAreReached) {
  Beyond31Bits rows;
  if (!rows.exists()) GTEST_SKIP() << "no address range of 8.6 GB to be had";
  constexpr int64_t kWidthHere = Beyond31Bits::kRowWidth;
  const std::vector<int32_t> far{299'599, 299'593, 3};
  for (size_t i = 0; i < far.size(); ++i) {
    for (int64_t d = 0; d < kWidthHere; ++d) {
      rows.row(far[i])[d] = static_cast<float>(i + 1) + static_cast<float>(d % 16) / 16;
    }
  }
  Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  const std::vector<int32_t> slot_offset{0, 3};
  for_each_runnable<Gather>([&](const Kernel<Gather>& kernel) {
    std::vector<float> y(3 * kWidthHere, kNan);
    kernel.run({1, kWidthHere, 3, RowLayout::rows_f32},
               {.x = rows.begin(),
                .row_token = far.data(),
                .slot_offset = slot_offset.data(),
                .y = y.data()},
               {}, stream);
    for (size_t i = 0; i < far.size(); ++i) {
      EXPECT_EQ(std::memcmp(&y[i * kWidthHere], rows.row(far[i]), kWidthHere * sizeof(float)), 0);
    }
  });
  const std::vector<float> weight{1, 1, 1};
  for_each_runnable<Combine>([&](const Kernel<Combine>& kernel) {
    std::vector<float> y(kWidthHere, 0.0f);
    kernel.run({kWidthHere, 3},
               {.rows = rows.begin(),
                .pick_row = far.data(),
                .weight = weight.data(),
                .y = y.data(),
                .tokens = 1},
               {}, stream);
    for (int64_t d = 0; d < kWidthHere; ++d) {
      ASSERT_EQ(y[static_cast<size_t>(d)], 6 + 3 * static_cast<float>(d % 16) / 16);
    }
  });
}

}  // namespace
}  // namespace switchyard::moe
