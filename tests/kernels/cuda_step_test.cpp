// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels between the experts against the reference or plain sums in f64: rows, heads, dense products, routing.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cases/norm_rope_act.h"
#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/step_head.h"
#include "kernels/cuda_run.h"
#include "kernels/entry_run.h"

namespace switchyard::kernels {
namespace {

using cases::on_device;
using cases::OnDevice;

CudaStreamHandle queue() { return cases::cuda_stream()->handle(); }

double wide(float value) { return static_cast<double>(value); }

void expect_near(const std::vector<float>& found, const std::vector<float>& expected,
                 double limit) {
  if (expected.empty()) return;
  const Comparison c = compare(found, expected);
  EXPECT_LE(c.relative_error, limit) << c.text();
}

TEST(CudaRows, NormIsTheReferences) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const auto& shape : cases::rms_norm_cases()) {
    if (shape.add || !shape.norm) continue;
    SCOPED_TRACE(shape.name);
    auto x = cases::random_values(shape.tokens * shape.width, 1, 3);
    const auto weight = cases::random_values(shape.width, 3, 2);
    std::vector<float> expected(x.size());
    cases::run_entry(
        cases::reference_of<RmsNorm>(), {.width = shape.width, .eps = 1e-5f},
        {.x = x.data(), .weight = weight.data(), .y = expected.data(), .tokens = shape.tokens}, 1);
    const OnDevice dx(x), dw(weight), y32(nullptr, std::ssize(x) * 4),
        y16(nullptr, std::ssize(x) * 2);
    cuda::norm_rows({.x = dx.as<float>(),
                     .weight = dw.as<float>(),
                     .tokens = shape.tokens,
                     .width = shape.width,
                     .eps = 1e-5f,
                     .y_f32 = y32.as<float>(),
                     .y_bf16 = y16.data()},
                    queue());
    expect_near(y32.read<float>(std::ssize(x)), expected, 1e-6);
    expect_near(y16.read_floats(std::ssize(x), DType::bf16), expected, 4e-3);
  }
}

// From products in f32, or in bf16.
void check_heads(const cases::PrepareQkvCase& c, DType dtype, DType products) {
  const int64_t heads = c.heads + 2 * c.kv_heads, width = heads * c.head_dim;
  const int64_t blocks = c.tokens / c.block_tokens + 3, pairs = c.rotary_dim / 2;
  const int64_t cache = blocks * c.kv_heads * c.block_tokens * c.head_dim;
  const auto qkv = products == DType::bf16 ? cases::bf16_values(c.tokens * width, 1)
                                           : cases::random_values(c.tokens * width, 1, 2);
  const bool full = c.norm == QkNorm::full_width;
  const auto q_norm = cases::random_values((full ? c.heads : 1) * c.head_dim, 2, 1);
  const auto k_norm = cases::random_values((full ? c.kv_heads : 1) * c.head_dim, 3, 1);
  const auto cos = cases::random_values(c.tokens * pairs, 4, 1);
  const auto sin = cases::random_values(c.tokens * pairs, 5, 1);
  auto slot = cases::scrambled(blocks * c.block_tokens, 7);
  slot.resize(static_cast<size_t>(c.tokens));
  std::vector<int32_t> row(static_cast<size_t>(c.tokens));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int32_t>(i);
  const PrepareQkv::Problem problem{.heads = c.heads,
                                    .kv_heads = c.kv_heads,
                                    .head_dim = c.head_dim,
                                    .rotary_dim = c.rotary_dim,
                                    .norm = c.norm,
                                    .eps = 1e-5f,
                                    .clip = c.clip,
                                    .block_tokens = c.block_tokens,
                                    .cache = DType::f32};
  std::vector<float> q(static_cast<size_t>(c.tokens * c.heads * c.head_dim));
  std::vector<float> k(static_cast<size_t>(cache)), v(k.size());
  cases::run_entry(cases::reference_of<PrepareQkv>(), problem,
                   {.qkv = qkv.data(),
                    .q_norm = q_norm.data(),
                    .k_norm = k_norm.data(),
                    .cos = cos.data(),
                    .sin = sin.data(),
                    .slot = slot.data(),
                    .q = q.data(),
                    .k_cache = k.data(),
                    .v_cache = v.data(),
                    .tokens = c.tokens},
                   1);
  const OnDevice d_qkv = on_device(qkv, products);
  const OnDevice d_q_norm(q_norm), d_k_norm(k_norm), d_cos(cos), d_sin(sin), d_slot(slot),
      d_row(row);
  const OnDevice d_q(nullptr, std::ssize(q) * 4);
  const std::vector<float> zeros(k.size());
  const OnDevice d_k(zeros), d_v(zeros);
  const auto kind = c.norm == QkNorm::per_head ? cuda::QkNormKind::per_head
                    : full                     ? cuda::QkNormKind::full_width
                                               : cuda::QkNormKind::none;
  cuda::prepare_heads({.heads = c.heads,
                       .kv_heads = c.kv_heads,
                       .head_dim = c.head_dim,
                       .rotary_dim = c.rotary_dim,
                       .norm = kind,
                       .eps = 1e-5f,
                       .clip = c.clip,
                       .block_tokens = c.block_tokens,
                       .dtype = dtype,
                       .qkv = products == DType::f32 ? d_qkv.as<float>() : nullptr,
                       .qkv_bf16 = products == DType::bf16 ? d_qkv.data() : nullptr,
                       .q_norm = d_q_norm.as<float>(),
                       .k_norm = d_k_norm.as<float>(),
                       .cos = d_cos.as<float>(),
                       .sin = d_sin.as<float>(),
                       .rope_row = d_row.as<int32_t>(),
                       .slot = d_slot.as<int32_t>(),
                       .q = d_q.data(),
                       .k_cache = d_k.data(),
                       .v_cache = d_v.data(),
                       .tokens = c.tokens},
                      queue());
  const double limit = dtype == DType::f32 ? 1e-6 : 4e-3;
  expect_near(d_q.read_floats(std::ssize(q), dtype), q, limit);
  expect_near(d_v.read_floats(cache, dtype), v, limit);
  const auto found = d_k.read_floats(cache, dtype);
  std::vector<float> turned(found.size());  // [.., P, Z] to the reference's [.., Z, P]
  const int64_t tile = int64_t{c.block_tokens} * c.head_dim;
  for (int64_t i = 0; i < cache; ++i) {
    const int64_t in = i % tile;
    turned[static_cast<size_t>(i - in + in % c.head_dim * c.block_tokens + in / c.head_dim)] =
        found[static_cast<size_t>(i)];
  }
  expect_near(turned, k, limit);
}

TEST(CudaRows, HeadsAreTheReferences) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const auto& shape : cases::prepare_qkv_cases()) {
    for (const auto& [dtype, products] : {std::pair{DType::f32, DType::f32},
                                          {DType::bf16, DType::f32},
                                          {DType::bf16, DType::bf16}}) {
      SCOPED_TRACE(
          fmt::format("{}, {} of {}", shape.name, dtype_name(dtype), dtype_name(products)));
      if (shape.tokens > 0) check_heads(shape, dtype, products);
    }
  }
}

// Rows of any order, tiles that the vocabulary does not fill, widths of one to four parts; twice, as the launch leaves what it counts
// with fit for the next.
TEST(CudaHead, LogitsAndLargestAreThoseOfItsParts) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const std::vector<int32_t> order{3, 0, 7, 9, 5, 1, 8, 2};
  for (const auto& [vocab, width] :
       {std::pair<int64_t, int64_t>{1003, 1024}, {5000, 2048}, {777, 3072}, {2500, 4096}}) {
    const auto x = cases::random_values(10 * width, 1, 2),
               norm = cases::random_values(width, 2, 1.5f);
    const auto table = cases::bf16_values(vocab * width, 3);
    const OnDevice d_x(x), d_norm(norm), d_table = on_device(table, DType::bf16), row(order);
    const OnDevice workspace(
        std::vector<uint8_t>(static_cast<size_t>(cuda::step_head_workspace())));
    for (const int64_t tokens : {1, 2, 5, 8}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} of {}", tokens, vocab, width));
      const OnDevice logits(nullptr, tokens * vocab * 4), pick(nullptr, tokens * 4);
      const OnDevice normed(nullptr, tokens * width * 2), expected(nullptr, tokens * vocab * 4);
      const cuda::StepHead head{.x = d_x.as<float>(),
                                .row = row.as<int32_t>(),
                                .norm = d_norm.as<float>(),
                                .table = d_table.data(),
                                .tokens = tokens,
                                .width = width,
                                .vocab = vocab,
                                .epsilon = 1e-5f,
                                .scale = 0.5f,
                                .logits = logits.as<float>(),
                                .pick = pick.as<int32_t>(),
                                .workspace = workspace.data()};
      if (!cuda::step_head_accepts(head)) GTEST_SKIP() << "for sm_90 alone";
      cuda::norm_rows({.x = d_x.as<float>(),
                       .row = row.as<int32_t>(),
                       .weight = d_norm.as<float>(),
                       .tokens = tokens,
                       .width = width,
                       .eps = 1e-5f,
                       .y_bf16 = normed.data()},
                      queue());
      cuda::dense_plain({.x = normed.data(),
                         .weight = d_table.data(),
                         .tokens = tokens,
                         .n = vocab,
                         .k = width,
                         .alpha = 0.5f,
                         .y = expected.as<float>()},
                        queue());
      const auto wanted = expected.read<float>(tokens * vocab);
      for (int repeat = 0; repeat < 2; ++repeat) {
        cuda::step_head(head, queue());
        const auto found = logits.read<float>(tokens * vocab);
        expect_near(found, wanted, 1e-3);
        const auto picks = pick.read<int32_t>(tokens);
        for (int64_t t = 0; t < tokens; ++t) {
          const auto first = found.begin() + t * vocab;
          EXPECT_EQ(picks[static_cast<size_t>(t)], std::max_element(first, first + vocab) - first);
        }
      }
    }
  }
}

TEST(CudaHead, ATokenWithNaNHasNoPickAndBitsDoNotDependOnOthers) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const int64_t vocab = 3000, width = 2048, tokens = 6;
  auto x = cases::random_values(tokens * width, 1, 2);
  x[static_cast<size_t>(3 * width + 5)] = std::numeric_limits<float>::quiet_NaN();
  const OnDevice d_x(x), norm(cases::random_values(width, 2, 1.5f));
  const OnDevice table = on_device(cases::bf16_values(vocab * width, 3), DType::bf16);
  const OnDevice workspace(std::vector<uint8_t>(static_cast<size_t>(cuda::step_head_workspace())));
  std::vector<std::vector<float>> alone;
  const auto run = [&](const std::vector<int32_t>& rows) {
    const OnDevice row(rows), logits(nullptr, std::ssize(rows) * vocab * 4),
        pick(nullptr, std::ssize(rows) * 4);
    const cuda::StepHead head{.x = d_x.as<float>(),
                              .row = row.as<int32_t>(),
                              .norm = norm.as<float>(),
                              .table = table.data(),
                              .tokens = std::ssize(rows),
                              .width = width,
                              .vocab = vocab,
                              .logits = logits.as<float>(),
                              .pick = pick.as<int32_t>(),
                              .workspace = workspace.data()};
    if (!cuda::step_head_accepts(head))
      return std::pair<std::vector<float>, std::vector<int32_t>>();
    cuda::step_head(head, queue());
    return std::pair(logits.read<float>(std::ssize(rows) * vocab),
                     pick.read<int32_t>(std::ssize(rows)));
  };
  const auto [all, picks] = run({0, 1, 2, 3, 4, 5});
  if (picks.empty()) GTEST_SKIP() << "for sm_90 alone";
  for (int32_t t = 0; t < tokens; ++t) {
    EXPECT_EQ(picks[static_cast<size_t>(t)] < 0, t == 3);
    const auto [one, pick] = run({t});
    EXPECT_EQ(pick[0], picks[static_cast<size_t>(t)]);
    const bool same = std::equal(one.begin(), one.end(), all.begin() + t * vocab);
    EXPECT_TRUE(same || t == 3) << t;
  }
}

TEST(CudaRows, Swiglu) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const int64_t tokens = 9, width = 130;
  auto gate_up = cases::random_values(tokens * 2 * width, 2, 4);
  gate_up[0] = -200;  // e^200 has no f32
  gate_up[1] = 200;
  const auto logit = cases::random_values(tokens, 3, 2);
  std::vector<float> expected;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      const double g = wide(gate_up[t * 2 * width + i]), u = wide(gate_up[(t * 2 + 1) * width + i]);
      expected.push_back(
          static_cast<float>(g / (1 + std::exp(-g)) * u / (1 + std::exp(-wide(logit[t])))));
    }
  }
  const OnDevice d_in(gate_up), d_logit(logit), h(nullptr, tokens * width * 4);
  cuda::swiglu({.gate_up = d_in.as<float>(),
                .weight = d_logit.as<float>(),
                .tokens = tokens,
                .ffn_width = width,
                .dtype = DType::f32,
                .h = h.data()},
               queue());
  expect_near(h.read<float>(tokens * width), expected, 1e-6);
}

struct DenseCase {
  int64_t tokens, n, k;
};
constexpr DenseCase kDenseCases[] = {{1, 1, 32},    {1, 16, 64},    {2, 33, 96},     {7, 100, 256},
                                     {8, 128, 320}, {9, 47, 512},   {16, 64, 2048},  {31, 80, 160},
                                     {32, 16, 288}, {33, 100, 128}, {64, 200, 96},   {257, 72, 64},
                                     {3, 5, 7},     {40, 17, 100},  {1, 5120, 2048}, {100, 24, 40}};

std::vector<float> dense_expected(const DenseCase& c, const std::vector<float>& x,
                                  const std::vector<float>& w, const std::vector<float>& bias,
                                  const std::vector<float>& before) {
  std::vector<float> y;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = 0;
      for (int64_t i = 0; i < c.k; ++i) sum += wide(x[t * c.k + i]) * wide(w[n * c.k + i]);
      sum = sum * 0.5 + wide(bias[n]) + wide(before[t * c.n + n]);
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

template <class Run>
void check_dense(DType dtype, double limit, Run&& run) {
  for (const DenseCase& c : kDenseCases) {
    SCOPED_TRACE(fmt::format("{} x {} x {} {}", c.tokens, c.n, c.k, dtype_name(dtype)));
    const auto x = cases::bf16_values(c.tokens * c.k, 1), w = cases::bf16_values(c.n * c.k, 2);
    const auto bias = cases::random_values(c.n, 3, 1);
    const auto before = cases::random_values(c.tokens * c.n, 4, 1);
    // Room for the library's padded tokens.
    const int64_t padded = cuda::padded_tokens(c.tokens);
    auto wide_x = x, wide_y = before;
    wide_x.resize(static_cast<size_t>(padded * c.k));
    wide_y.resize(static_cast<size_t>(padded * c.n));
    const OnDevice dx = on_device(wide_x, dtype), dw = on_device(w, dtype), db(bias), y(wide_y);
    const cuda::Dense args{.x = dx.data(),
                           .weight = dw.data(),
                           .bias = db.as<float>(),
                           .dtype = dtype,
                           .tokens = c.tokens,
                           .n = c.n,
                           .k = c.k,
                           .alpha = 0.5f,
                           .accumulate = true,
                           .y = y.as<float>()};
    if (!run(args)) continue;
    expect_near(y.read<float>(c.tokens * c.n), dense_expected(c, x, w, bias, before), limit);
  }
}

TEST(CudaDense, EveryWayAgreesWithTheSum) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  std::string note;
  auto library = cuda::DenseLibrary::open(note);
  auto chosen = cuda::DenseProducts::open(false, note);
  auto fixed = cuda::DenseProducts::open(true, note);
  RecordProperty("cublaslt", library != nullptr ? "loaded" : note);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double limit = 2e-6;  // inputs are exact in both, sums are f32
    const auto each = [&](auto&& run) { check_dense(dtype, limit, run); };
    each([](const cuda::Dense& a) { return cuda::dense_plain(a, queue()), true; });
    each([](const cuda::Dense& a) {
      if (!cuda::dense_skinny_accepts(a)) return false;
      return cuda::dense_skinny(a, queue()), true;
    });
    each([](const cuda::Dense& a) {
      if (!cuda::dense_few_accepts(a)) return false;
      return cuda::dense_few(a, queue()), true;
    });
    each([&](const cuda::Dense& a) { return library != nullptr && library->run(a, queue()); });
    each([&](const cuda::Dense& a) { return chosen.run(a, queue()), true; });
    each([&](const cuda::Dense& a) { return fixed.run(a, queue()), true; });
  }
}

// What a token gets depends on its row alone.
// Rounded products are the library's: of few tokens there are none.
TEST(CudaDense, RoundedIsTheSum) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  std::string note;
  auto products = cuda::DenseProducts::open(false, note);
  const bool has_library = cuda::DenseLibrary::open(note) != nullptr;
  for (const DenseCase& c : kDenseCases) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", c.tokens, c.n, c.k));
    const int64_t padded = cuda::padded_tokens(c.tokens);
    auto x = cases::bf16_values(c.tokens * c.k, 1);
    const auto w = cases::bf16_values(c.n * c.k, 2);
    const std::vector<float> expected =
        dense_expected(c, x, w, std::vector<float>(static_cast<size_t>(c.n)),
                       std::vector<float>(static_cast<size_t>(c.tokens * c.n)));
    x.resize(static_cast<size_t>(padded * c.k));
    const OnDevice dx = on_device(x, DType::bf16), dw = on_device(w, DType::bf16),
                   y(nullptr, padded * c.n * 2);
    const bool ran = products.run_rounded({.x = dx.data(),
                                           .weight = dw.data(),
                                           .tokens = c.tokens,
                                           .n = c.n,
                                           .k = c.k,
                                           .alpha = 0.5f,
                                           .y_bf16 = y.data()},
                                          queue());
    const bool few = c.tokens <= 8, aligned = c.n % 8 == 0 && c.k % 8 == 0;
    if (few || !has_library || aligned) {
      EXPECT_EQ(ran, has_library && !few);
    }
    if (ran) expect_near(y.read_floats(c.tokens * c.n, DType::bf16), expected, 4e-3);
  }
}

TEST(CudaDense, SkinnyBitsDoNotDependOnTheOthers) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const int64_t n = 100, k = 512;
  const OnDevice x = on_device(cases::random_values(32 * k, 1, 1), DType::bf16);
  const OnDevice w = on_device(cases::random_values(n * k, 2, 1), DType::bf16);
  const auto run = [&](int64_t tokens, int64_t first) {
    const OnDevice y(nullptr, tokens * n * 4);
    cuda::dense_skinny({.x = x.as<Bf16>() + first * k,
                        .weight = w.data(),
                        .tokens = tokens,
                        .n = n,
                        .k = k,
                        .y = y.as<float>()},
                       queue());
    return y.read<float>(tokens * n);
  };
  const auto all = run(32, 0);
  for (const int64_t tokens : {1, 5, 8, 9, 16, 17}) {
    const auto some = run(tokens, 3);
    EXPECT_TRUE(cases::same_bits(some, std::span(all).subspan(3 * n, tokens * n)));
  }
}

struct FewCase {
  int64_t n, k;
};
// Few and many blocks, of 8 and of 16 warps, with and without a ragged last one.
constexpr FewCase kFewCases[] = {{17, 32}, {100, 512}, {2048, 4096}, {5120, 2048}, {6001, 2080}};

void expect_the_bits_of_skinny(std::span<const FewCase> shapes) {
  for (const FewCase& c : shapes) {
    const OnDevice x = on_device(cases::random_values(8 * c.k, 1, 1), DType::bf16);
    const OnDevice w = on_device(cases::random_values(c.n * c.k, 2, 1), DType::bf16);
    const OnDevice bias(cases::random_values(c.n, 3, 1));
    const auto before = cases::random_values(8 * c.n, 4, 1);
    for (const int64_t tokens : {1, 2, 3, 7, 8}) {
      for (const bool add : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, add {}", tokens, c.n, c.k, add));
        const auto run = [&](auto&& product) {
          const OnDevice y(before);
          product(cuda::Dense{.x = x.data(),
                              .weight = w.data(),
                              .bias = add ? bias.as<float>() : nullptr,
                              .tokens = tokens,
                              .n = c.n,
                              .k = c.k,
                              .alpha = 0.5f,
                              .accumulate = add,
                              .y = y.as<float>()});
          return y.read<float>(8 * c.n);
        };
        const auto few = run([](const cuda::Dense& a) {
          ASSERT_TRUE(cuda::dense_few_accepts(a));
          cuda::dense_few(a, queue());
        });
        const auto skinny = run([](const cuda::Dense& a) { cuda::dense_skinny(a, queue()); });
        EXPECT_TRUE(cases::same_bits(few, skinny));
      }
    }
  }
}

TEST(CudaDense, FewHaveTheBitsOfSkinny) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  expect_the_bits_of_skinny(kFewCases);
}

// What scripts/gpu_sanitize.txt runs.
TEST(CudaDense, SmallFewHaveTheBitsOfSkinny) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  expect_the_bits_of_skinny(std::span(kFewCases).first(2));
}

// Beside the norm and the product one after the other; and the same every time.
TEST(CudaDense, FewBehindANorm) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const FewCase& c : {FewCase{40, 64}, {100, 544}, {2048, 4096}, {5120, 2048}, {6001, 4128}}) {
    const int64_t rows = 11;
    const OnDevice dx(cases::random_values(rows * c.k, 1, 3)), dg(cases::random_values(c.k, 2, 2));
    const OnDevice dw = on_device(cases::random_values(c.n * c.k, 3, 1), DType::bf16);
    const OnDevice d_row(std::vector<int32_t>{7, 0, 10, 3, 3, 9, 1, 5});
    for (const int64_t tokens : {1, 2, 5, 8}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}", tokens, c.n, c.k));
      std::vector<float> first;
      for (int repeat = 0; repeat < 5; ++repeat) {
        const OnDevice y(nullptr, tokens * c.n * 4);
        const cuda::Dense args{.weight = dw.data(),
                               .tokens = tokens,
                               .n = c.n,
                               .k = c.k,
                               .y = y.as<float>(),
                               .norm = {.x = dx.as<float>(),
                                        .row = d_row.as<int32_t>(),
                                        .weight = dg.as<float>(),
                                        .tokens = tokens,
                                        .width = c.k,
                                        .eps = 1e-5f},
                               .next = dw.data(),
                               .next_bytes = c.n * c.k * 2};
        ASSERT_TRUE(cuda::dense_few_accepts(args));
        cuda::dense_few(args, queue());
        const auto found = y.read<float>(tokens * c.n);
        if (repeat > 0) {
          EXPECT_TRUE(cases::same_bits(found, first));
          continue;
        }
        first = found;
        const OnDevice normed(nullptr, tokens * c.k * 2), apart(nullptr, tokens * c.n * 4);
        cuda::NormRows norm = args.norm;
        norm.y_bf16 = normed.data();
        cuda::norm_rows(norm, queue());
        cuda::dense_skinny({.x = normed.data(),
                            .weight = dw.data(),
                            .tokens = tokens,
                            .n = c.n,
                            .k = c.k,
                            .y = apart.as<float>()},
                           queue());
        expect_near(found, apart.read<float>(tokens * c.n), 5e-4);  // a bf16 row may round apart
      }
    }
  }
}

// A norm reads what the product before it adds, many times over without a pause: a launch that began too early would show.
TEST(CudaDense, ChainedLaunchesKeepTheirOrder) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  const int64_t width = 2048, tokens = 2;
  const OnDevice w = on_device(cases::random_values(width * width, 1, 0.02f), DType::bf16);
  const OnDevice g(std::vector<float>(static_cast<size_t>(width), 1.0f));
  const auto start = cases::random_values(tokens * width, 2, 1);
  const auto run = [&](bool waits) {
    const OnDevice x(start), rows(nullptr, tokens * width * 2), y(nullptr, tokens * width * 4);
    for (int i = 0; i < 60; ++i) {
      const cuda::NormRows norm{.x = x.as<float>(),
                                .weight = g.as<float>(),
                                .tokens = tokens,
                                .width = width,
                                .y_bf16 = rows.data()};
      cuda::Dense product{.x = rows.data(),
                          .weight = w.data(),
                          .tokens = tokens,
                          .n = width,
                          .k = width,
                          .accumulate = true,
                          .y = x.as<float>()};
      cuda::norm_rows(norm, queue());
      if (waits) cases::synchronize();
      cuda::dense_few(product, queue());
      if (waits) cases::synchronize();
      product.norm = norm;
      product.accumulate = false;
      product.y = y.as<float>();
      cuda::dense_few(product, queue());
      if (waits) cases::synchronize();
    }
    auto all = x.read<float>(tokens * width);
    const auto last = y.read<float>(tokens * width);
    all.insert(all.end(), last.begin(), last.end());
    return all;
  };
  const auto slow = run(true);
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_TRUE(cases::same_bits(run(false), slow));
}

TEST(CudaRandom, IsTheSameEachTimeAndWithinItsBounds) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  constexpr int64_t kCount = 100003;
  const auto make = [](uint64_t seed) {
    const OnDevice to(nullptr, kCount * 4);
    cuda::fill_random(to.data(), DType::f32, kCount, 0.25f, seed, queue());
    return to.read<float>(kCount);
  };
  const auto a = make(1), b = make(2);
  EXPECT_TRUE(cases::same_bits(a, make(1)));
  EXPECT_FALSE(cases::same_bits(a, b));
  double sum = 0, squares = 0;
  for (const float value : a) {
    ASSERT_LE(std::abs(value), 0.25f);
    sum += wide(value);
    squares += wide(value) * wide(value);
  }
  EXPECT_NEAR(sum / kCount, 0, 2e-3);
  EXPECT_NEAR(squares / kCount, 0.25 * 0.25 / 3, 5e-4);
}

}  // namespace
}  // namespace switchyard::kernels
