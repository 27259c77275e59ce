// SPDX-License-Identifier: Apache-2.0
// The whole layer against a per-token loop in double: every kind of shared expert, precision and
// thread count.
#include "moe/layer.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/compare.h"
#include "tensor/float_types.h"

namespace switchyard::moe {
namespace {

constexpr int64_t kWidth = 48, kFfn = 40, kSharedWidth = 33;
constexpr int kExperts = 11, kTopK = 3;

using Matrix = std::vector<float>;  // row-major, values that bf16 holds exactly

Matrix random_matrix(std::mt19937& random, int64_t rows, int64_t columns, float scale) {
  std::normal_distribution<float> normal(0, scale);
  Matrix m(rows * columns);
  for (float& v : m) v = to_float(to_bf16(normal(random)));
  return m;
}

struct Ffn {
  Matrix gate, up, down;
};

struct Weights {
  Matrix router, shared_gate;
  std::vector<Ffn> experts;
  Ffn shared;
};

Ffn random_ffn(std::mt19937& random, int64_t ffn) {
  return {random_matrix(random, ffn, kWidth, 0.2f), random_matrix(random, ffn, kWidth, 0.2f),
          random_matrix(random, kWidth, ffn, 0.2f)};
}

Weights random_weights() {
  std::mt19937 random(11);
  Weights w;
  w.router = random_matrix(random, kExperts, kWidth, 0.3f);
  w.shared_gate = random_matrix(random, 1, kWidth, 0.3f);
  for (int e = 0; e < kExperts; ++e) w.experts.push_back(random_ffn(random, kFfn));
  w.shared = random_ffn(random, kSharedWidth);
  return w;
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

void add_ffn(const Ffn& w, int64_t ffn, const float* x, double scale, std::vector<double>& y) {
  std::vector<float> hidden(ffn);
  for (int64_t f = 0; f < ffn; ++f) {
    const double g = dot(&w.gate[f * kWidth], x, kWidth), u = dot(&w.up[f * kWidth], x, kWidth);
    hidden[f] = static_cast<float>(g / (1 + std::exp(-g)) * u);
  }
  for (int64_t d = 0; d < kWidth; ++d) y[d] += scale * dot(&w.down[d * ffn], hidden.data(), ffn);
}

enum class Shared { none, plain, gated };

std::vector<float> scaled(const float* x, double by) {
  std::vector<float> y(x, x + kWidth);
  for (float& v : y) v = static_cast<float>(static_cast<double>(v) * by);
  return y;
}

Matrix expected(const Weights& w, const Matrix& x, Shared shared, float residual_scale,
                bool weight_on_input = false) {
  Matrix y = x;  // the residual stream starts as x in these tests
  for (size_t at = 0; at < x.size(); at += kWidth) {
    std::vector<std::pair<double, int>> score;
    for (int e = 0; e < kExperts; ++e)
      score.emplace_back(-dot(&w.router[e * kWidth], &x[at], kWidth), e);
    std::sort(score.begin(), score.end());
    double sum = 0;
    for (int i = 0; i < kTopK; ++i) sum += std::exp(-score[i].first);
    std::vector<double> out(kWidth, 0);
    for (int i = 0; i < kTopK; ++i) {
      const double weight = std::exp(-score[i].first) / sum;
      add_ffn(w.experts[score[i].second], kFfn, scaled(&x[at], weight_on_input ? weight : 1).data(),
              weight_on_input ? 1 : weight, out);
    }
    if (shared != Shared::none) {
      const double z = dot(w.shared_gate.data(), &x[at], kWidth);
      add_ffn(w.shared, kSharedWidth, &x[at], shared == Shared::gated ? 1 / (1 + std::exp(-z)) : 1,
              out);
    }
    for (int64_t d = 0; d < kWidth; ++d) {
      y[at + d] += static_cast<float>(static_cast<double>(residual_scale) * out[d]);
    }
  }
  return y;
}

void pack_ffn(Experts& experts, int slot, const Ffn& w, int64_t ffn) {
  const TensorView up = TensorView::of(w.up.data(), {ffn, kWidth});
  experts.gate_up().pack(slot, TensorView::of(w.gate.data(), {ffn, kWidth}), &up);
  experts.down().pack(slot, TensorView::of(w.down.data(), {kWidth, ffn}));
}

constexpr RouterSpec kRouter{
    .num_experts = kExperts, .top_k = kTopK, .weigh = Weigh::softmax_after_top_k};

Layer make_layer(const Weights& w, Shared shared, float residual_scale, DType dtype,
                 const Limits& limits, const RouterSpec& router = kRouter) {
  const LayerSpec spec{.router = router,
                       .width = kWidth,
                       .ffn_width = kFfn,
                       .shared_width = shared == Shared::none ? 0 : kSharedWidth,
                       .shared_gated = shared == Shared::gated,
                       .residual_scale = residual_scale,
                       .weight = dtype};
  Layer layer = Layer::create(spec, limits).value();
  layer.router().gate().pack(0, TensorView::of(w.router.data(), {kExperts, kWidth}));
  for (int e = 0; e < kExperts; ++e) pack_ffn(layer.experts(), e, w.experts[e], kFfn);
  if (shared != Shared::none) pack_ffn(*layer.shared(), 0, w.shared, kSharedWidth);
  if (shared == Shared::gated) {
    layer.shared_gate()->pack(0, TensorView::of(w.shared_gate.data(), {1, kWidth}));
  }
  return layer;
}

Matrix run(const Weights& w, const Matrix& x, Shared shared, float residual_scale, DType dtype,
           int threads, const RouterSpec& router = kRouter) {
  const auto tokens = static_cast<int64_t>(x.size()) / kWidth;
  Pool pool({.num_threads = threads, .pin = false});
  const Stream stream({}, pool);
  const Limits limits{std::max<int64_t>(tokens, 1), pool.num_threads()};
  Layer layer = make_layer(w, shared, residual_scale, dtype, limits, router);
  Arena arena = Arena::create(layer.room(limits)).value();
  Matrix y = x;
  layer.forward(x.data(), tokens, y.data(), {stream, arena});
  return y;
}

class LayerTest : public testing::TestWithParam<std::tuple<int, Shared, DType>> {};

TEST_P(LayerTest, EqualsTheLoopOverTokens) {
  const auto [tokens, shared, dtype] = GetParam();
  std::mt19937 random(23);
  const Weights w = random_weights();
  const Matrix x = random_matrix(random, tokens, kWidth, 1);
  const Matrix found = run(w, x, shared, 0.5f, dtype, 2), wanted = expected(w, x, shared, 0.5f);
  if (tokens == 0) return;
  const Comparison c = compare(found, wanted);
  // bf16 rounds the hidden row between the two products; f32 only sums in another order.
  EXPECT_LE(c.relative_error, dtype == DType::f32 ? 1e-5 : 4e-3) << c.text();
}

TEST_P(LayerTest, WeightsScaleWhatExpertsReadWhenTheSpecSaysSo) {
  const auto [tokens, shared, dtype] = GetParam();
  if (tokens == 0) return;
  std::mt19937 random(31);
  const Weights w = random_weights();
  const Matrix x = random_matrix(random, tokens, kWidth, 2);
  RouterSpec router = kRouter;
  router.weight_on_input = true;
  const Matrix found = run(w, x, shared, 0.5f, dtype, 2, router);
  const Comparison c = compare(found, expected(w, x, shared, 0.5f, true));
  EXPECT_LE(c.relative_error, dtype == DType::f32 ? 1e-5 : 4e-3) << c.text();
  EXPECT_NE(found, run(w, x, shared, 0.5f, dtype, 2));
}

TEST_P(LayerTest, ThreadsDoNotChangeABit) {
  const auto [tokens, shared, dtype] = GetParam();
  std::mt19937 random(29);
  const Weights w = random_weights();
  const Matrix x = random_matrix(random, tokens, kWidth, 1);
  const Matrix one = run(w, x, shared, 1, dtype, 1);
  EXPECT_EQ(one, run(w, x, shared, 1, dtype, 2));
  EXPECT_EQ(one, run(w, x, shared, 1, dtype, 3));
}

// What the surviving picks give, with the weights that they had before the drop.
TEST(LayerCapacity, DroppedPicksPassByTheResidual) {
  std::mt19937 random(31);
  const Weights w = random_weights();
  const int64_t tokens = 57;
  const Matrix x = random_matrix(random, tokens, kWidth, 1);
  Pool pool({.num_threads = 2, .pin = false});
  const Limits limits{tokens, pool.num_threads()};
  for (const Overflow overflow : {Overflow::drop_last, Overflow::drop_lowest}) {
    RouterSpec router = kRouter;
    router.capacity_factor = 0.3f;
    router.overflow = overflow;
    Layer layer = make_layer(w, Shared::plain, 1, DType::f32, limits, router);
    Arena arena = Arena::create(layer.room(limits)).value();
    Matrix found = x;
    const Routing routing =
        layer.forward(x.data(), tokens, found.data(), {Stream({}, pool), arena});
    ASSERT_GT(routing.counts.dropped, 0);
    ASSERT_GT(routing.counts.unrouted_tokens, 0);
    Matrix wanted = x;
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> out(kWidth, 0);
      for (int64_t pick = t * kTopK; pick < (t + 1) * kTopK; ++pick) {
        const int32_t e = routing.expert.as<int32_t>()[pick];
        if (e < 0) continue;
        add_ffn(w.experts[e], kFfn, &x[t * kWidth],
                static_cast<double>(routing.weight.as<float>()[pick]), out);
      }
      add_ffn(w.shared, kSharedWidth, &x[t * kWidth], 1, out);
      for (int64_t d = 0; d < kWidth; ++d) wanted[t * kWidth + d] += static_cast<float>(out[d]);
    }
    const Comparison c = compare(found, wanted);
    EXPECT_LE(c.relative_error, 1e-5) << c.text();
  }
}

TEST(LayerCapacity, RefusesARoundingThatIsNotKnown) {
  RouterSpec router = kRouter;
  router.capacity_factor = 1;
  router.overflow = Overflow::drop_last;
  router.capacity_rounding = "nearest";
  const auto layer = Layer::create(
      {.router = router, .width = kWidth, .ffn_width = kFfn, .weight = DType::f32}, {1, 1});
  ASSERT_FALSE(layer.ok());
  EXPECT_NE(layer.error().message.find("ceil floor gshard tutel"), std::string::npos)
      << layer.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, LayerTest,
                         testing::Combine(testing::Values(0, 1, 2, 31, 33, 200),
                                          testing::Values(Shared::none, Shared::plain,
                                                          Shared::gated),
                                          testing::Values(DType::f32, DType::bf16)));

}  // namespace
}  // namespace switchyard::moe
