// SPDX-License-Identifier: Apache-2.0
// Every entry of the attention table against the reference, over tests/cases/attention.h.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/attention_run.h"

namespace switchyard::kernels {
namespace {

using cases::AttentionCase;
using cases::AttentionInputs;
using cases::same_bits;

bool takes_tiles(const Kernel<Attention>& kernel) {
  return kernel.name == "attention.cpu.amx_bf16";
}

// The tile kernel alone may refuse a case.
void expect_no_other_refuses(const Attention::Problem& problem) {
  for (const auto& kernel : table<Attention>()) {
    const Verdict verdict = kernel.accept(problem);
    const bool fits = problem.cache == DType::bf16 && problem.head_dim % 32 == 0 &&
                      problem.block_tokens % 16 == 0 && !problem.deterministic &&
                      problem.heads / problem.kv_heads <= 64;
    EXPECT_EQ(verdict.refused == nullptr, fits || !takes_tiles(kernel)) << kernel.name;
  }
}

// Calls test(kernel, inputs, cache type) for every case on every entry, in both types of cache.
template <class Test>
void for_each_case(Test&& test, bool deterministic = false) {
  for (const AttentionCase& shape : cases::attention_cases()) {
    AttentionInputs inputs(shape);
    inputs.deterministic = deterministic;
    for (const DType cache : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{}, cache {}", shape.name, dtype_name(cache)));
      expect_no_other_refuses(inputs.problem(cache));
      cases::for_each_entry<Attention>(inputs.problem(cache),
                                       [&](const auto& kernel) { test(kernel, inputs, cache); });
    }
  }
}

TEST(Attention, EveryEntryAgreesWithTheReference) {
  for_each_case([](const auto& kernel, const AttentionInputs& in, DType cache) {
    const auto expected = in.run(cases::reference_of<Attention>(), cache, in.all(), 1);
    const bool large = in.shape().score_size > 1;
    cases::expect_close(in.run(kernel, cache, in.all(), 2), expected,
                        takes_tiles(kernel) ? "attention_tiles"
                        : large             ? "attention_large_scores"
                                            : "attention",
                        DType::f32);
  });
}

TEST(Attention, BitsDoNotDependOnTheThreadCount) {
  for_each_case([](const auto& kernel, const AttentionInputs& in, DType cache) {
    const std::vector<float> one = in.run(kernel, cache, in.all(), 1);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(same_bits(one, in.run(kernel, cache, in.all(), threads)))
          << threads << " threads";
    }
  });
}

// The tokens of a sequence alone, in several steps and in one give the bits that they give among the others, where that
// is asked for.
TEST(Attention, BitsDoNotDependOnTheRestOfTheStep) {
  for_each_case(
      [](const auto& kernel, const AttentionInputs& in, DType cache) {
        const std::vector<float> among = in.run(kernel, cache, in.all(), 2);
        int64_t first = 0;
        for (const AttentionInputs::Part& all : in.all()) {
          const auto expected =
              std::span(among).subspan(first * in.token_width(), all.tokens * in.token_width());
          first += all.tokens;
          for (const int step : {1, 7, 64, 1000}) {
            if (step == 1 && all.tokens > 50) continue;  // the same borders, only slower
            std::vector<float> pieces;
            for (int t = 0; t < all.tokens; t += step) {
              const auto piece = in.run(
                  kernel, cache, {{all.sequence, t, std::min(step, all.tokens - t)}}, 1 + t % 3);
              pieces.insert(pieces.end(), piece.begin(), piece.end());
            }
            EXPECT_TRUE(same_bits(pieces, expected))
                << "sequence " << all.sequence << " in steps of " << step;
          }
        }
      },
      /*deterministic=*/true);
}

TEST(Attention, ABrokenTokenStaysAlone) {
  const AttentionCase shape{"broken", 4, 2, 32, 16, {{20, 3}, {0, 30}}};
  const AttentionInputs whole(shape);
  AttentionInputs broken(shape);
  const int64_t token = 11;  // of the second sequence
  broken.q()[static_cast<size_t>(token * whole.token_width() + 5)] = std::nanf("");
  cases::for_each_entry<Attention>(whole.problem(DType::bf16), [&](const auto& kernel) {
    auto expected = whole.run(kernel, DType::bf16, whole.all(), 1);
    auto found = broken.run(kernel, DType::bf16, broken.all(), 1);
    for (int64_t z = 0; z < shape.head_dim; ++z) {
      const auto i = static_cast<size_t>(token * whole.token_width() + z);  // head 0
      EXPECT_TRUE(std::isnan(found[i]));
      found[i] = expected[i];
    }
    EXPECT_TRUE(same_bits(found, expected));
  });
}

TEST(Attention, RefusesBlocksThatNoRegisterDivides) {
  Attention::Problem problem{.heads = 2, .kv_heads = 1, .head_dim = 16, .block_tokens = 12};
  for (const auto& kernel : table<Attention>()) {
    const bool is_reference = &kernel == &cases::reference_of<Attention>();
    EXPECT_EQ(kernel.accept(problem).refused == nullptr, is_reference) << kernel.name;
  }
}

}  // namespace
}  // namespace switchyard::kernels
