// SPDX-License-Identifier: Apache-2.0
// Routers on the device against moe/route, which defines them: picks, weights, counts, and what the experts make of them.
// Routers without a form on the device take the host's way, which must give the same.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "cases/route.h"
#include "model/cuda_layer.h"
#include "model/devices.h"
#include "moe/capacity.h"
#include "moe/select_run.h"

namespace switchyard::test {
namespace {

using moe::awkward_logits;
using moe::random_logits;
using moe::select_picks;

#define SWITCHYARD_SKIP_WITHOUT_CUDA()                                                         \
  if (const auto bytes = model::find_device({DeviceId::Kind::cuda, 0})->available_bytes(0, 0); \
      !bytes.ok())                                                                             \
  GTEST_SKIP() << bytes.error().message

int compute_capability() {
  const DeviceFacts facts = cuda_devices().value().at(0);
  return facts.compute_major * 10 + facts.compute_minor;
}

struct Named {
  const char* name;
  RouterSpec spec;
  bool on_host = false;
};

RouterSpec spec_of(int experts, int top_k, Score score, Weigh weigh) {
  RouterSpec spec;
  spec.num_experts = experts;
  spec.top_k = top_k;
  spec.score = score;
  spec.weigh = weigh;
  return spec;
}

template <class Change>
Named changed(const char* name, RouterSpec spec, bool on_host, const Change& change) {
  change(spec);
  return {name, spec, on_host};
}

std::vector<Named> device_routers() {
  const RouterSpec soft = spec_of(64, 8, Score::softmax, Weigh::renormalize);
  const RouterSpec raw = spec_of(64, 6, Score::softmax, Weigh::raw);
  const RouterSpec sigmoid = spec_of(128, 8, Score::sigmoid, Weigh::renormalize);
  return {
      {"Mixtral", spec_of(8, 2, Score::softmax, Weigh::renormalize)},
      {"OLMoE", spec_of(64, 8, Score::softmax, Weigh::raw)},
      {"Switch", spec_of(16, 1, Score::softmax, Weigh::raw)},
      {"Granite", spec_of(32, 8, Score::softmax, Weigh::softmax_after_top_k)},
      changed("DeepSeek-V1", soft, false, [](auto& s) { s.renormalize_epsilon = 1e-20f; }),
      changed("NLLB", spec_of(16, 2, Score::softmax, Weigh::renormalize), false,
              [](auto& s) { s.renormalize_minimum = 0x1p-23f; }),
      changed("DBRX, p = 2", spec_of(16, 4, Score::softmax, Weigh::renormalize), false,
              [](auto& s) { s.norm_order = 2; }),
      changed("DBRX, p = 3.5", spec_of(16, 4, Score::softmax, Weigh::renormalize), false,
              [](auto& s) { s.norm_order = 3.5f; }),
      changed("ERNIE 4.5", soft, false,
              [](auto& s) { s.selection_bias = true, s.renormalize_minimum = 1e-12f; }),
      changed("DeepSeek-V2", raw, false,
              [](auto& s) { s.num_groups = 8, s.top_groups = 3, s.scale = 16; }),
      changed("device limit", raw, false, [](auto& s) { s.num_devices = 8, s.max_devices = 3; }),
      changed("DeepSeek-V3", sigmoid, false,
              [](auto& s) {
                s.selection_bias = true, s.num_groups = 8, s.top_groups = 4;
                s.group_score = GroupScore::sum_top_2, s.renormalize_epsilon = 1e-20f;
                s.scale = 2.5f;
              }),
      changed("sums of two without a bias", sigmoid, false,
              [](auto& s) {
                s.num_groups = 8, s.top_groups = 4, s.group_score = GroupScore::sum_top_2;
              }),
      changed("MiniMax-M2", sigmoid, false, [](auto& s) { s.selection_bias = true; }),
      changed("Llama-4", spec_of(16, 1, Score::sigmoid, Weigh::raw), false,
              [](auto& s) { s.weight_on_input = true; }),
      changed("weights on the input of three", spec_of(16, 3, Score::sigmoid, Weigh::raw), false,
              [](auto& s) { s.weight_on_input = true; }),
      changed(
          "DeepSeek-V4", spec_of(256, 8, Score::sqrt_softplus, Weigh::renormalize), false,
          [](auto& s) { s.selection_bias = true, s.renormalize_epsilon = 1e-20f, s.scale = 2.5f; }),
      {"all of 7", spec_of(7, 7, Score::softmax, Weigh::raw)},
      {"500 experts", spec_of(500, 32, Score::softmax, Weigh::renormalize)},
  };
}

std::vector<Named> host_routers() {
  const RouterSpec two = spec_of(16, 2, Score::softmax, Weigh::softmax_after_top_k);
  const RouterSpec four = spec_of(16, 4, Score::softmax, Weigh::renormalize);
  return {
      changed("noisy top-k", two, true,
              [](auto& s) { s.selector = "noisy_top_k", s.noise = 0.5f; }),
      changed("GShard", two, true,
              [](auto& s) { s.selector = "gshard_top_2", s.random_second = true; }),
      changed("sparsemixer", two, true,
              [](auto& s) { s.selector = "sparsemixer", s.jitter = 0.01f; }),
      changed("expert choice", four, true,
              [](auto& s) { s.selector = "expert_choice", s.trained_across_tokens = true; }),
      changed("capacity, the lightest dropped", four, true,
              [](auto& s) { s.capacity_factor = 1, s.overflow = Overflow::drop_lowest; }),
      changed("capacity, the last dropped", four, true,
              [](auto& s) { s.capacity_factor = 0.5f, s.overflow = Overflow::drop_last; }),
  };
}

// Specs that a selector's own check wants otherwise.
RouterSpec adjusted(RouterSpec spec) {
  for (const Weigh weigh :
       {spec.weigh, Weigh::raw, Weigh::renormalize, Weigh::softmax_after_top_k}) {
    spec.weigh = weigh;
    if (moe::find_selector(spec.selector).value()->check(spec).ok()) return spec;
  }
  return spec;
}

struct Found {
  std::vector<int32_t> expert;
  std::vector<float> weight, y;
  std::vector<double> expected;  // of y, for these picks
  model::cuda::HostLoads loads;
};

Found run_experts(const RouterSpec& spec, DType dtype, const std::vector<float>& logits,
                  const std::vector<float>& bias, bool on_host) {
  CudaStream stream = CudaStream::open(0).value();
  Pool pool({.num_threads = 2, .pin = false});
  const int64_t tokens = std::ssize(logits) / spec.num_experts;
  auto experts = model::cuda::Experts::create(spec, SmallBlock::kWidth, SmallBlock::kFfn, dtype,
                                              tokens, compute_capability())
                     .value();
  EXPECT_EQ(!experts.host_reason().empty(), on_host) << experts.host_reason();
  SmallBlock block(stream, spec, dtype, 5);
  const auto weights = block.weights(stream, experts.layout());
  model::cuda::ExpertScratch scratch;
  experts.reserve(scratch, stream).value();
  const int64_t picks = tokens * experts.columns();
  const OnDevice<float> on_device(stream, logits), biases(stream, bias);
  const OnDevice<int32_t> expert(stream, std::vector<int32_t>(static_cast<size_t>(picks), -77));
  const OnDevice<float> weight(stream, std::vector<float>(static_cast<size_t>(picks), moe::kNan));
  const std::vector<float> zeros(static_cast<size_t>(tokens * SmallBlock::kWidth), 0);
  const OnDevice<float> y(stream, zeros);
  const model::cuda::ExpertCall call{.x = block.input(stream, tokens),
                                     .logits = on_device.data(),
                                     .bias = bias.empty() ? nullptr : biases.data(),
                                     .tokens = tokens,
                                     .expert = expert.data(),
                                     .weight = weight.data(),
                                     .y = y.data(),
                                     .layer = 3};
  experts.run(weights, call, scratch, stream, Stream({}, pool)).value();
  stream.synchronize("run the experts").value();
  Found found{read_device(stream, expert.data(), picks),
              read_device(stream, weight.data(), picks),
              read_device(stream, y.data(), tokens * SmallBlock::kWidth),
              {},
              {}};
  found.expected = block.expected(found.expert, found.weight, tokens);
  if (experts.host_loads() != nullptr) found.loads = *experts.host_loads();
  return found;
}

void expect_outputs(const Found& found, DType dtype) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < found.y.size(); ++i) {
    wrong += std::pow(double{found.y[i]} - found.expected[i], 2);
    all += std::pow(found.expected[i], 2);
  }
  EXPECT_LE(std::sqrt(wrong / all), dtype == DType::bf16 ? 6e-3 : 1e-5);
}

// What experts of a row are compared by, in f32.
std::vector<float> choices(const RouterSpec& spec, std::span<const float> z, const float* bias) {
  const bool sums = spec.num_groups > 1 && spec.group_score == GroupScore::sum_top_2;
  if (bias == nullptr && !sums) return {z.begin(), z.end()};
  std::vector<float> choice = cases::naive_scores(spec.score, z);
  for (size_t e = 0; bias != nullptr && e < choice.size(); ++e) {
    choice[e] = choice_of(choice[e], bias[e]);
  }
  return choice;
}

// Scores that decide come from another exp on the device: picks may differ only where these are equal but for rounding.
void expect_row(const RouterSpec& spec, std::span<const float> z, const float* bias,
                const int32_t* found, const int32_t* wanted) {
  const size_t k = static_cast<size_t>(spec.top_k);
  if (std::equal(found, found + k, wanted)) return;
  const std::vector<float> choice = choices(spec, z, bias);
  ASSERT_NE(choice, std::vector<float>(z.begin(), z.end())) << "the logits decide: no rounding";
  ASSERT_EQ(std::set<int32_t>(found, found + k).size(), k) << "picks are distinct";
  double sum = 0, expected = 0;
  for (size_t i = 0; i < k; ++i) {
    ASSERT_GE(found[i], 0);
    ASSERT_LT(found[i], spec.num_experts);
    sum += std::max(double{choice[static_cast<size_t>(found[i])]}, -1e30);
    expected += std::max(double{choice[static_cast<size_t>(wanted[i])]}, -1e30);
  }
  EXPECT_NEAR(sum, expected, 2e-6 * (1 + std::abs(expected)));
}

// Rows whose picks agree have weights that agree.
void expect_weights(const RouterSpec& spec, const Found& found, const moe::Picks& wanted,
                    const std::vector<float>& logits) {
  const size_t k = static_cast<size_t>(spec.top_k), experts = static_cast<size_t>(spec.num_experts);
  for (size_t t = 0; t * k < found.expert.size(); ++t) {
    const int32_t* picks = found.expert.data() + t * k;
    if (!std::equal(picks, picks + k, wanted.expert.data() + t * k)) continue;
    const std::span z(logits.data() + t * experts, experts);
    cases::NaiveRow row{{picks, picks + k}, {}, 1, true};
    const bool nan = std::any_of(z.begin(), z.end(), [](float v) { return std::isnan(v); });
    row.usable = !nan && std::isfinite(*std::max_element(z.begin(), z.end()));
    if (row.usable) {
      cases::naive_weights(spec, z, row);
    } else {
      row.weight.assign(k, 0);
    }
    EXPECT_TRUE(cases::weights_agree(spec, z, row, found.weight.data() + t * k))
        << "token " << t << ": " << found.weight[t * k] << " for " << row.weight[0];
  }
}

TEST(CudaRouters, ThoseOfTheDeviceAreThoseOfMoeRoute) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const Named& router : device_routers()) {
    SCOPED_TRACE(router.name);
    const RouterSpec& spec = router.spec;
    std::vector<float> bias;
    SelectInput in;
    if (spec.selection_bias) {
      bias = random_logits(spec.num_experts, 1, 0.1f);
      bias[0] = -moe::kInf;
      in.bias = bias.data();
    }
    for (const std::vector<float>& logits :
         {random_logits(int64_t{70} * spec.num_experts, 2), awkward_logits(9, spec.num_experts, 3),
          awkward_logits(150, spec.num_experts, 4)}) {
      const moe::Picks wanted = select_picks(spec, logits, in);
      const Found found = run_experts(spec, DType::bf16, logits, bias, false);
      const auto experts = static_cast<size_t>(spec.num_experts);
      for (size_t t = 0; t * experts < logits.size(); ++t) {
        SCOPED_TRACE(testing::Message() << "token " << t);
        expect_row(spec, {logits.data() + t * experts, experts}, in.bias,
                   found.expert.data() + t * static_cast<size_t>(spec.top_k),
                   wanted.expert.data() + t * static_cast<size_t>(spec.top_k));
      }
      expect_weights(spec, found, wanted, logits);
      expect_outputs(found, DType::bf16);
      if (HasFailure()) return;
    }
  }
}

TEST(CudaRouters, PlainExpertsTakeThePicksOfTheSameRouter) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const Named& router : device_routers()) {
    SCOPED_TRACE(router.name);
    if (router.spec.num_experts > 64) continue;
    const auto logits = random_logits(int64_t{20} * router.spec.num_experts, 2);
    const std::vector<float> bias(
        router.spec.selection_bias ? static_cast<size_t>(router.spec.num_experts) : 0, 0.01f);
    expect_outputs(run_experts(router.spec, DType::f32, logits, bias, false), DType::f32);
  }
}

TEST(CudaRouters, OthersAreRoutedOnTheHost) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  for (const Named& router : host_routers()) {
    SCOPED_TRACE(router.name);
    const RouterSpec spec = adjusted(router.spec);
    SelectInput in;
    in.random.layer = 3;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::vector<float>& logits : {random_logits(int64_t{5} * spec.num_experts, 2),
                                               awkward_logits(40, spec.num_experts, 3)}) {
        const moe::Picks wanted = select_picks(spec, logits, in);
        const Found found = run_experts(spec, dtype, logits, {}, true);
        EXPECT_EQ(found.loads.counts.unusable_rows, wanted.unusable_rows);
        int64_t dropped = 0;
        for (size_t i = 0; i < wanted.expert.size(); ++i) {
          const bool here = found.expert[i] == wanted.expert[i];
          EXPECT_TRUE(here || found.expert[i] == -1) << "pick " << i;
          dropped += here ? 0 : 1;
          EXPECT_EQ(found.weight[i], wanted.weight[i]) << "pick " << i;
        }
        EXPECT_EQ(found.loads.counts.dropped, dropped);
        EXPECT_TRUE(dropped == 0 || spec.capacity_factor > 0) << dropped;
        if (spec.capacity_factor > 0 && wanted.expert.size() > 100) {
          EXPECT_GT(dropped, 0);
        }
        expect_outputs(found, dtype);
      }
    }
  }
}

// Needs no device.
TEST(CudaRouters, ASpecThatMeansNothingIsRefused) {
  const auto create = [](const RouterSpec& router) {
    return model::cuda::Experts::create(router, 128, 128, DType::bf16, 64, 90);
  };
  RouterSpec spec = spec_of(16, 4, Score::softmax, Weigh::raw);
  EXPECT_TRUE(create(spec).ok());
  spec.selector = "no such selector";
  EXPECT_FALSE(create(spec).ok());
  spec = spec_of(16, 17, Score::softmax, Weigh::raw);
  EXPECT_FALSE(create(spec).ok());
  spec = spec_of(16, 4, Score::softmax, Weigh::raw);
  spec.selector = "expert_choice";  // without the word that the model was trained so
  EXPECT_FALSE(create(spec).ok());
}

}  // namespace
}  // namespace switchyard::test
