// SPDX-License-Identifier: Apache-2.0
// Dense products of one wave of blocks, rounded or on through the heads, against sums in f64 and the launches that they replace.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/dense_tile.h"
#include "kernels/cuda_run.h"
#include "kernels/entry_run.h"
#include "tensor/compare.h"

namespace switchyard::kernels {
namespace {

using cases::on_device;
using cases::OnDevice;

CudaStreamHandle queue() { return cases::cuda_stream()->handle(); }

void expect_near(const std::vector<float>& found, const std::vector<float>& expected,
                 double limit) {
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, limit) << c.text();
}

// A product on the device; behind x lie rows of NaN.
struct Product {
  Product(int64_t tokens, int64_t n, int64_t k, uint32_t seed = 0)
      : x_values(cases::bf16_values(tokens * k, 16 * seed + 1)),
        w_values(cases::bf16_values(n * k, 16 * seed + 2)),
        x(with_nan(x_values, 64 * k)),
        w(on_device(w_values, DType::bf16)),
        y(nullptr, tokens * n * 2) {
    args = {
        .x = x.data(), .weight = w.data(), .tokens = tokens, .n = n, .k = k, .y_bf16 = y.data()};
  }
  static OnDevice with_nan(std::vector<float> values, int64_t count) {
    values.insert(values.end(), static_cast<size_t>(count), NAN);
    return on_device(values, DType::bf16);
  }
  std::vector<float> expected() const {
    std::vector<float> sums;
    for (int64_t t = 0; t < args.tokens; ++t) {
      for (int64_t i = 0; i < args.n; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < args.k; ++k) {
          sum += static_cast<double>(x_values[static_cast<size_t>(t * args.k + k)]) *
                 static_cast<double>(w_values[static_cast<size_t>(i * args.k + k)]);
        }
        sums.push_back(static_cast<float>(sum));
      }
    }
    return sums;
  }
  std::vector<float> result() const { return y.read_floats(args.tokens * args.n, DType::bf16); }

  std::vector<float> x_values, w_values;
  OnDevice x, w, y;
  cuda::Dense args;
};

// Shapes that fill an H200 or H100 of 132 multiprocessors.
bool tiles_run() { return cuda::dense_tile_rounded(Product(512, 6144, 64).args, queue()); }

TEST(CudaTile, RoundedSumsAreTheSums) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!tiles_run()) GTEST_SKIP() << "for sm_90 of 132 multiprocessors alone";
  for (const auto& [tokens, n, k] : {std::array<int64_t, 3>{512, 6144, 64},
                                     {512, 5952, 192},
                                     {1024, 2880, 320},
                                     {256, 12288, 128}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", tokens, n, k));
    Product product(tokens, n, k);
    ASSERT_TRUE(cuda::dense_tile_rounded(product.args, queue()));
    const std::vector<float> first = product.result();
    expect_near(first, product.expected(), 4e-3);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(cuda::dense_tile_rounded(product.args, queue()));
      ASSERT_EQ(product.result(), first);
    }
    // The bits of a token do not depend on the others.
    const int64_t kept = 100;
    std::fill(product.x_values.begin() + kept * k, product.x_values.end(), 3.0f);
    const OnDevice changed = on_device(product.x_values, DType::bf16);
    product.args.x = changed.data();
    ASSERT_TRUE(cuda::dense_tile_rounded(product.args, queue()));
    const std::vector<float> other = product.result();
    EXPECT_TRUE(std::equal(other.begin(), other.begin() + kept * n, first.begin()));
  }
}

TEST(CudaTile, SumsAreAdded) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!tiles_run()) GTEST_SKIP() << "for sm_90 of 132 multiprocessors alone";
  for (const auto& [tokens, n, k] :
       {std::array<int64_t, 3>{512, 2048, 64}, {512, 1920, 1088}, {1024, 1024, 704}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", tokens, n, k));
    const Product product(tokens, n, k);
    const std::vector<float> before = cases::random_values(tokens * n, 5, 1);
    std::vector<float> expected = product.expected();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + 0.5f * expected[i];
    std::vector<float> first;
    for (int i = 0; i < 10; ++i) {
      const OnDevice y(before);
      cuda::Dense args = product.args;
      args.y_bf16 = nullptr;
      args.y = y.as<float>();
      args.alpha = 0.5f;
      args.accumulate = true;
      ASSERT_TRUE(cuda::dense_tile_added(args, queue()));
      const std::vector<float> found = y.read<float>(tokens * n);
      if (i == 0) first = found;
      ASSERT_EQ(found, first);
    }
    expect_near(first, expected, 2e-6);
  }
}

TEST(CudaTile, WhatItCannotDoIsRefused) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const Product product(512, 6144, 64);
  const OnDevice bias(cases::random_values(6144, 3, 1));
  const auto refuses = [&](auto&& change) {
    cuda::Dense args = product.args;
    change(args);
    return !cuda::dense_tile_rounded(args, queue());
  };
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.tokens = 500; }));
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.n = 6080; }));
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.k = 32; }));
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.n = 192 * 8; }));
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.alpha = 0.5f; }));
  EXPECT_TRUE(refuses([](cuda::Dense& a) { a.dtype = DType::f32; }));
  EXPECT_TRUE(refuses([&](cuda::Dense& a) { a.bias = bias.as<float>(); }));
  cuda::PrepareHeads heads{.heads = 16,
                           .kv_heads = 16,
                           .head_dim = 128,
                           .rotary_dim = 128,
                           .norm = cuda::QkNormKind::full_width,
                           .tokens = 512};
  EXPECT_FALSE(cuda::dense_tile_heads(product.args, heads, queue())) << "without words";
  const OnDevice words(std::vector<uint64_t>(cuda::FullHeadWords::kCount));
  heads.words = words.as<uint64_t>();
  heads.clip = 1;
  EXPECT_FALSE(cuda::dense_tile_heads(product.args, heads, queue())) << "with a clip";
}

struct HeadsCase {
  int heads, kv_heads;
  int64_t tokens, k;
  cuda::QkNormKind norm;
  float clip = 0;
};

// What the heads write.
struct Written {
  Written(const HeadsCase& c, int64_t cache)
      : q(nullptr, c.tokens * c.heads * 128 * 2),
        k(on_device(std::vector<float>(static_cast<size_t>(cache)), DType::bf16)),
        v(on_device(std::vector<float>(static_cast<size_t>(cache)), DType::bf16)) {}
  std::vector<float> all(const HeadsCase& c, int64_t cache) const {
    std::vector<float> values = q.read_floats(c.tokens * c.heads * 128, DType::bf16);
    for (const OnDevice* from : {&k, &v}) {
      const std::vector<float> more = from->read_floats(cache, DType::bf16);
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  }
  OnDevice q, k, v;
};

// A case's inputs, and what a product and prepare_heads, and both in one, make of them.
struct HeadsOnDevice {
  explicit HeadsOnDevice(const HeadsCase& of, uint32_t seed = 0)
      : c(of),
        product(c.tokens, num_outputs(), c.k, seed),
        q_norm(cases::random_values(128 * (full() ? c.heads : 1), 16 * seed + 2, 1)),
        k_norm(cases::random_values(128 * (full() ? c.kv_heads : 1), 16 * seed + 3, 1)),
        cos(cases::random_values(c.tokens * 64, 16 * seed + 4, 1)),
        sin(cases::random_values(c.tokens * 64, 16 * seed + 5, 1)),
        sums(nullptr, c.tokens * num_outputs() * 4),
        slot(some_slots()),
        row(cases::scrambled(c.tokens, 8)),
        two(c, cache()),
        one(c, cache()) {}

  bool full() const { return c.norm == cuda::QkNormKind::full_width; }
  int64_t num_outputs() const { return (c.heads + 2 * c.kv_heads) * 128; }
  int64_t num_slots() const { return (c.tokens / kBlock + 3) * kBlock; }
  int64_t cache() const { return num_slots() * c.kv_heads * 128; }
  std::vector<int32_t> some_slots() const {
    std::vector<int32_t> slots = cases::scrambled(num_slots(), 7);
    slots.resize(static_cast<size_t>(c.tokens));
    return slots;
  }
  cuda::PrepareHeads heads(const Written& to) const {
    return {.heads = c.heads,
            .kv_heads = c.kv_heads,
            .head_dim = 128,
            .rotary_dim = 128,
            .norm = c.norm,
            .eps = 1e-5f,
            .clip = c.clip,
            .block_tokens = kBlock,
            .q_norm = q_norm.as<float>(),
            .k_norm = k_norm.as<float>(),
            .cos = cos.as<float>(),
            .sin = sin.as<float>(),
            .rope_row = row.as<int32_t>(),
            .slot = slot.as<int32_t>(),
            .q = to.q.data(),
            .k_cache = to.k.data(),
            .v_cache = to.v.data(),
            .tokens = c.tokens};
  }
  void run_two() const {
    cuda::Dense plain = product.args;
    plain.y_bf16 = nullptr;
    plain.y = sums.as<float>();
    cuda::dense_plain(plain, queue());
    cuda::PrepareHeads call = heads(two);
    call.qkv = sums.as<float>();
    cuda::prepare_heads(call, queue());
  }
  bool run_one(const OnDevice& words) const {
    cuda::PrepareHeads call = heads(one);
    call.words = words.as<uint64_t>();
    return cuda::dense_tile_heads(product.args, call, queue());
  }
  std::vector<float> result() const { return one.all(c, cache()); }
  // Both round the same sums but for their last bits.
  void expect_the_two() const {
    const int64_t queries = c.tokens * c.heads * 128;
    for (const auto& [found, expected, count] : {std::tuple{&one.q, &two.q, queries},
                                                 {&one.k, &two.k, cache()},
                                                 {&one.v, &two.v, cache()}}) {
      expect_near(found->read_floats(count, DType::bf16), expected->read_floats(count, DType::bf16),
                  5e-4);
    }
  }

  static constexpr int kBlock = 32;
  HeadsCase c;
  Product product;
  OnDevice q_norm, k_norm, cos, sin, sums, slot, row;
  Written two, one;
};

OnDevice no_words() { return OnDevice(std::vector<uint64_t>(cuda::FullHeadWords::kCount)); }

void check_heads(const HeadsCase& c) {
  const HeadsOnDevice on(c);
  const OnDevice words = no_words();
  on.run_two();
  ASSERT_TRUE(on.run_one(words));
  const std::vector<float> first = on.result();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(on.run_one(words));
    ASSERT_EQ(on.result(), first);
  }
  on.expect_the_two();
}

TEST(CudaTile, HeadsBehindAProductAreTheTwo) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!tiles_run()) GTEST_SKIP() << "for sm_90 of 132 multiprocessors alone";
  using cuda::QkNormKind;
  for (const HeadsCase& c : {HeadsCase{32, 4, 300, 128, QkNormKind::per_head},
                             {32, 4, 384, 64, QkNormKind::none},
                             {20, 4, 500, 192, QkNormKind::per_head, 0.5f},
                             {32, 4, 512, 256, QkNormKind::per_head},
                             {32, 4, 576, 64, QkNormKind::none, 2},
                             {16, 16, 512, 128, QkNormKind::full_width},
                             {16, 4, 1024, 64, QkNormKind::full_width},
                             {12, 6, 1024, 192, QkNormKind::full_width}}) {
    SCOPED_TRACE(fmt::format("{} + {} heads, {} tokens, {}", c.heads, c.kv_heads, c.tokens, c.k));
    check_heads(c);
  }
}

// What a launch left in the words is not taken for what the next one says.
TEST(CudaTile, FullHeadsThatFollowEachOtherShareTheWords) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!tiles_run()) GTEST_SKIP() << "for sm_90 of 132 multiprocessors alone";
  const OnDevice words = no_words();
  constexpr auto kFull = cuda::QkNormKind::full_width;
  std::deque<HeadsOnDevice> launches;
  for (const HeadsCase& c : {HeadsCase{16, 16, 512, 128, kFull},
                             {16, 4, 1024, 64, kFull},
                             {10, 10, 768, 192, kFull},
                             {11, 11, 768, 64, kFull},  // takes all multiprocessors of an H200
                             {16, 16, 512, 64, kFull},
                             {12, 6, 1024, 64, kFull}}) {
    SCOPED_TRACE(fmt::format("{} + {} heads, {} tokens", c.heads, c.kv_heads, c.tokens));
    launches.emplace_back(c, static_cast<uint32_t>(1 + launches.size())).run_two();
    const OnDevice others = no_words();
    if (launches.back().run_one(others)) continue;
    EXPECT_EQ(c.heads, 11) << "refused";
    launches.pop_back();
  }
  std::vector<std::vector<float>> alone;
  for (const HeadsOnDevice& launch : launches) {
    launch.expect_the_two();
    alone.push_back(launch.result());
  }
  for (int round = 0; round < 5; ++round) {
    for (const HeadsOnDevice& launch : launches) ASSERT_TRUE(launch.run_one(words));
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(launches[i].result(), alone[i]) << "launch " << i << " of round " << round;
    }
  }
}

// Only what tokens with a NaN give changes.
TEST(CudaTile, FullHeadsBesideRowsOfNaNKeepTheirBits) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  if (!tiles_run()) GTEST_SKIP() << "for sm_90 of 132 multiprocessors alone";
  const HeadsCase c{16, 4, 1024, 64, cuda::QkNormKind::full_width};
  HeadsOnDevice on(c);
  const OnDevice words = no_words();
  ASSERT_TRUE(on.run_one(words));
  const std::vector<float> good = on.result();
  std::vector<float> x = on.product.x_values;
  const std::array<int64_t, 4> bad{0, 5, 200, 1023};
  for (const int64_t t : bad) x[static_cast<size_t>(t * c.k + 7)] = NAN;
  const OnDevice changed = on_device(x, DType::bf16);
  on.product.args.x = changed.data();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(on.run_one(words));
    std::vector<float> found = on.result();
    for (const int64_t t : bad) {
      EXPECT_TRUE(std::isnan(found[static_cast<size_t>(t * c.heads * 128)])) << "token " << t;
    }
    int64_t lost = 0;
    for (size_t at = 0; at < found.size(); ++at) {
      if (!std::isnan(found[at])) continue;
      found[at] = good[at];
      ++lost;
    }
    EXPECT_TRUE(cases::same_bits(found, good));
    EXPECT_EQ(lost, std::ssize(bad) * on.num_outputs());
  }
}

}  // namespace
}  // namespace switchyard::kernels
