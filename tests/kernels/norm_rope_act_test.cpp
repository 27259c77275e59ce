// SPDX-License-Identifier: Apache-2.0
// Every entry of the RMS norm and of the preparation of q, k, v against the reference, over tests/cases/norm_rope_act.h.
#include "cases/norm_rope_act.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/entry_run.h"

namespace switchyard::kernels {
namespace {

using cases::PrepareQkvCase;
using cases::RmsNormCase;
using cases::same_bits;

struct RmsNormResult {
  std::vector<float> x, y;  // [T, D]
};

// Tokens [first, first + tokens) of a case on one entry.
RmsNormResult run_rms_norm(const Kernel<RmsNorm>& kernel, const RmsNormCase& shape, int64_t first,
                           int64_t tokens, int num_threads) {
  const auto part = [&](uint32_t seed, float scale) {
    const auto all = cases::random_values(shape.tokens * shape.width, seed, scale);
    return std::vector<float>(all.begin() + first * shape.width,
                              all.begin() + (first + tokens) * shape.width);
  };
  RmsNormResult result{part(1, 3), cases::poisoned_values((tokens + 1) * shape.width)};
  const std::vector<float> add = part(2, 1);
  const std::vector<float> weight = cases::random_values(shape.width, 3, 2);
  cases::run_entry(kernel, {.width = shape.width, .eps = 1e-5f},
                   {.x = result.x.data(),
                    .add = shape.add ? add.data() : nullptr,
                    .add_scale = shape.add_scale,
                    .weight = weight.data(),
                    .y = shape.norm ? result.y.data() : nullptr,
                    .tokens = tokens},
                   num_threads);
  const int64_t written = shape.norm ? tokens * shape.width : 0;
  const std::vector<float> guard = cases::poisoned_values(std::ssize(result.y) - written);
  EXPECT_TRUE(same_bits(std::span(result.y).subspan(written), guard)) << "wrote behind the end";
  result.y.resize(static_cast<size_t>(written));
  return result;
}

template <class Test>
void for_each_rms_norm(Test&& test) {
  for (const RmsNormCase& shape : cases::rms_norm_cases()) {
    SCOPED_TRACE(shape.name);
    cases::for_each_entry<RmsNorm>({.width = shape.width},
                                   [&](const auto& kernel) { test(kernel, shape); });
  }
}

TEST(RmsNorm, EveryEntryAgreesWithTheReference) {
  for_each_rms_norm([](const auto& kernel, const RmsNormCase& shape) {
    const auto expected = run_rms_norm(cases::reference_of<RmsNorm>(), shape, 0, shape.tokens, 1);
    const auto found = run_rms_norm(kernel, shape, 0, shape.tokens, 2);
    cases::expect_close(found.x, expected.x, "rms_norm", DType::f32);
    cases::expect_close(found.y, expected.y, "rms_norm", DType::f32);
  });
}

TEST(RmsNorm, BitsDependNeitherOnThreadsNorOnOtherTokens) {
  for_each_rms_norm([](const auto& kernel, const RmsNormCase& shape) {
    const auto one = run_rms_norm(kernel, shape, 0, shape.tokens, 1);
    for (const int threads : {2, 3}) {
      const auto many = run_rms_norm(kernel, shape, 0, shape.tokens, threads);
      EXPECT_TRUE(same_bits(one.x, many.x) && same_bits(one.y, many.y)) << threads << " threads";
    }
    for (int64_t t = 0; t < shape.tokens; t += 1 + shape.tokens / 8) {
      const auto alone = run_rms_norm(kernel, shape, t, 1, 1);
      const auto among = [&](const std::vector<float>& all) {
        return all.empty() ? std::span<const float>()
                           : std::span(all).subspan(t * shape.width, shape.width);
      };
      EXPECT_TRUE(same_bits(alone.x, among(one.x)) && same_bits(alone.y, among(one.y)))
          << "token " << t;
    }
  });
}

TEST(RmsNorm, ANormOfNothingIsZeroAndNanStaysInItsToken) {
  cases::for_each_entry<RmsNorm>({.width = 40}, [](const auto& kernel) {
    std::vector<float> x(120, 0.0f), y(120), weight(40, 1.0f);
    x[40] = std::nanf("");
    x[80] = 1;
    cases::run_entry(kernel, {.width = 40},
                     {.x = x.data(), .weight = weight.data(), .y = y.data(), .tokens = 3}, 1);
    EXPECT_EQ(y[0], 0);
    EXPECT_TRUE(std::isnan(y[40]) && std::isnan(y[79]));
    EXPECT_NEAR(y[80], std::sqrt(40.0f), 1e-3f);
  });
}

struct PrepareQkvResult {
  std::vector<float> q;     // [T, H, Z]
  std::vector<float> k, v;  // [T, G, Z] as read back from the cache
  bool clean = true;        // nothing else was written
};

// A case's inputs; tokens [first, first + tokens) of it run on one entry.
class PrepareQkvInputs {
 public:
  explicit PrepareQkvInputs(const PrepareQkvCase& c)
      : c_(c),
        row_((c.heads + 2 * int64_t{c.kv_heads}) * c.head_dim),
        qkv_(cases::random_values(c.tokens * row_, 1, 2)),
        q_norm_(cases::random_values(int64_t{c.heads} * c.head_dim, 2, 2)),
        k_norm_(cases::random_values(int64_t{c.kv_heads} * c.head_dim, 3, 2)),
        num_blocks_((c.tokens + c.block_tokens - 1) / c.block_tokens + 2),
        slot_(cases::scrambled(num_blocks_ * c.block_tokens, 4)) {
    const int64_t half = c.rotary_dim / 2;
    for (int64_t i = 0; i < c.tokens * half; ++i) {
      const float angle = 0.37f * static_cast<float>(i);
      cos_.push_back(std::cos(angle));
      sin_.push_back(std::sin(angle));
    }
  }

  PrepareQkv::Problem problem(DType cache) const {
    return {.heads = c_.heads,
            .kv_heads = c_.kv_heads,
            .head_dim = c_.head_dim,
            .rotary_dim = c_.rotary_dim,
            .norm = c_.norm,
            .eps = 1e-5f,
            .clip = c_.clip,
            .block_tokens = c_.block_tokens,
            .cache = cache};
  }
  std::vector<float>& qkv() { return qkv_; }

  PrepareQkvResult run(const Kernel<PrepareQkv>& kernel, DType cache, int64_t first, int64_t tokens,
                       int num_threads) const {
    const PrepareQkv::Problem p = problem(cache);
    const int64_t half = c_.rotary_dim / 2, q_width = int64_t{c_.heads} * c_.head_dim;
    const int64_t elements = num_blocks_ * c_.kv_heads * c_.block_tokens * c_.head_dim;
    Storage k = cases::poisoned(elements * dtype_bytes(cache));
    Storage v = cases::poisoned(elements * dtype_bytes(cache));
    PrepareQkvResult result;
    result.q = cases::poisoned_values((tokens + 1) * q_width);
    cases::run_entry(kernel, p,
                     {.qkv = qkv_.data() + first * row_,
                      .q_norm = c_.norm == QkNorm::none ? nullptr : q_norm_.data(),
                      .k_norm = c_.norm == QkNorm::none ? nullptr : k_norm_.data(),
                      .cos = half > 0 ? cos_.data() + first * half : nullptr,
                      .sin = half > 0 ? sin_.data() + first * half : nullptr,
                      .slot = slot_.data() + first,
                      .q = result.q.data(),
                      .k_cache = k.data(),
                      .v_cache = v.data(),
                      .tokens = tokens},
                     num_threads);
    const std::vector<float> guard = cases::poisoned_values(q_width);
    result.clean = same_bits(std::span(result.q).subspan(tokens * q_width), guard);
    result.q.resize(static_cast<size_t>(tokens * q_width));
    take(p, k, first, tokens, p.block_tokens, 1, result.k);
    take(p, v, first, tokens, 1, p.head_dim, result.v);
    const Storage untouched = cases::poisoned(elements * dtype_bytes(cache));
    const auto bytes = static_cast<size_t>(elements * dtype_bytes(cache));
    result.clean = result.clean && std::memcmp(k.data(), untouched.data(), bytes) == 0 &&
                   std::memcmp(v.data(), untouched.data(), bytes) == 0;
    return result;
  }

 private:
  // Reads the tokens' values out of a cache and poisons them again. Strides are of a head's value and of a block's slot.
  void take(const PrepareQkv::Problem& p, Storage& cache, int64_t first, int64_t tokens,
            int64_t value_stride, int64_t slot_stride, std::vector<float>& to) const {
    const int64_t size = dtype_bytes(p.cache);
    for (int64_t t = first; t < first + tokens; ++t) {
      const int64_t slot = slot_[static_cast<size_t>(t)];
      for (int64_t g = 0; g < p.kv_heads; ++g) {
        const int64_t base = (slot / p.block_tokens * p.kv_heads + g) * p.block_tokens * p.head_dim;
        for (int64_t z = 0; z < p.head_dim; ++z) {
          const int64_t i = base + slot % p.block_tokens * slot_stride + z * value_stride;
          to.push_back(cases::load_element(cache.data(), p.cache, i));
          std::memset(cache.data() + i * size, 0xFF, static_cast<size_t>(size));
        }
      }
    }
  }

  PrepareQkvCase c_;
  int64_t row_;                               // (H + 2 G) Z
  std::vector<float> qkv_, q_norm_, k_norm_;  // [T, row], [H * Z], [G * Z]
  int64_t num_blocks_;
  std::vector<int32_t> slot_;     // [T] and more
  std::vector<float> cos_, sin_;  // [T, r / 2]
};

template <class Test>
void for_each_prepare(Test&& test) {
  for (const PrepareQkvCase& shape : cases::prepare_qkv_cases()) {
    const PrepareQkvInputs inputs(shape);
    for (const DType cache : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{}, cache {}", shape.name, dtype_name(cache)));
      cases::for_each_entry<PrepareQkv>(
          inputs.problem(cache), [&](const auto& kernel) { test(kernel, inputs, shape, cache); });
    }
  }
}

TEST(PrepareQkv, EveryEntryAgreesWithTheReference) {
  for_each_prepare([](const auto& kernel, const auto& in, const auto& shape, DType cache) {
    const auto expected = in.run(cases::reference_of<PrepareQkv>(), cache, 0, shape.tokens, 1);
    const auto found = in.run(kernel, cache, 0, shape.tokens, 2);
    EXPECT_TRUE(expected.clean && found.clean) << "wrote elsewhere";
    cases::expect_close(found.q, expected.q, "prepare_qkv", DType::f32);
    cases::expect_close(found.k, expected.k, "prepare_qkv", cache);
    cases::expect_close(found.v, expected.v, "prepare_qkv", cache);
  });
}

TEST(PrepareQkv, BitsDependNeitherOnThreadsNorOnOtherTokens) {
  for_each_prepare([](const auto& kernel, const auto& in, const auto& shape, DType cache) {
    const auto one = in.run(kernel, cache, 0, shape.tokens, 1);
    for (const int threads : {2, 3}) {
      const auto many = in.run(kernel, cache, 0, shape.tokens, threads);
      EXPECT_TRUE(same_bits(one.q, many.q) && same_bits(one.k, many.k) && same_bits(one.v, many.v))
          << threads << " threads";
    }
    for (int64_t t = 0; t < shape.tokens; t += 3) {
      const auto alone = in.run(kernel, cache, t, 1, 1);
      const auto part = [t](const std::vector<float>& all, const std::vector<float>& token) {
        return same_bits(std::span(all).subspan(t * token.size(), token.size()), token);
      };
      EXPECT_TRUE(part(one.q, alone.q) && part(one.k, alone.k) && part(one.v, alone.v))
          << "token " << t;
    }
  });
}

TEST(PrepareQkv, NanSurvivesTheClip) {
  const PrepareQkvCase shape{"broken", 1, 1, 16, 0, 8, 1, QkNorm::none, 0.5f};
  PrepareQkvInputs in(shape);
  for (const size_t i : {3, 20, 47}) in.qkv()[i] = std::nanf("");
  for (const Kernel<PrepareQkv>& kernel : table<PrepareQkv>()) {
    if (!cases::runs_here(kernel.needs)) continue;
    SCOPED_TRACE(kernel.name);
    const auto result = in.run(kernel, DType::f32, 0, 1, 1);
    EXPECT_TRUE(std::isnan(result.q[3]) && std::isnan(result.k[4]) && std::isnan(result.v[15]));
    EXPECT_FALSE(std::isnan(result.q[2]) || std::isnan(result.k[5]) || std::isnan(result.v[14]));
  }
}

}  // namespace
}  // namespace switchyard::kernels
