// SPDX-License-Identifier: Apache-2.0
// Every file of tests/golden/routers: what the reference routers of transformers and the papers' formulas pick.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "moe/route/noisy_top_k.h"
#include "moe/select_run.h"

namespace switchyard::moe {
namespace {

const Json& member(const Json& json, const char* key) {
  const Json* found = json.find(key);
  SWITCHYARD_CHECK(found != nullptr, "golden without {}", key);
  return *found;
}

template <class T>
std::vector<T> numbers(const Json& json) {
  std::vector<T> values;
  for (const Json& item : json.as_array()) {
    if (item.is_array()) {
      for (const Json& inner : item.as_array()) values.push_back(static_cast<T>(inner.as_double()));
    } else {
      values.push_back(static_cast<T>(item.as_double()));
    }
  }
  return values;
}

void set_float(const Json& json, const char* key, float& into) {
  if (const Json* value = json.find(key)) into = static_cast<float>(value->as_double());
}
void set_int(const Json& json, const char* key, int& into) {
  if (const Json* value = json.find(key)) into = static_cast<int>(value->as_int());
}
void set_bool(const Json& json, const char* key, bool& into) {
  if (const Json* value = json.find(key)) into = value->as_bool();
}
template <class T>
void set_name(const Json& json, const char* key, T& into,
              std::vector<std::pair<std::string_view, T>> names) {
  const Json* value = json.find(key);
  if (value == nullptr) return;
  for (const auto& [name, meaning] : names) {
    if (name == value->as_string()) into = meaning;
  }
}

// Names refer to `json`, which must outlive the spec. Fails on a member that it does not know.
RouterSpec read_spec(const Json& json) {
  static const std::set<std::string_view> kKnown = {
      "num_experts",   "top_k",          "selector",        "score",
      "weigh",         "scale",          "group_score",     "renormalize_epsilon",
      "norm_order",    "noise",          "jitter",          "renormalize_minimum",
      "num_groups",    "top_groups",     "num_devices",     "max_devices",
      "random_second", "selection_bias", "weight_on_input", "trained_across_tokens"};
  for (const auto& [key, value] : json.as_object()) EXPECT_EQ(kKnown.count(key), 1u) << key;
  RouterSpec spec;
  if (const Json* name = json.find("selector")) spec.selector = name->as_string();
  set_int(json, "num_experts", spec.num_experts);
  set_int(json, "top_k", spec.top_k);
  set_name<Score>(json, "score", spec.score,
                  {{"sigmoid", Score::sigmoid}, {"sqrt_softplus", Score::sqrt_softplus}});
  set_name<Weigh>(
      json, "weigh", spec.weigh,
      {{"renormalize", Weigh::renormalize}, {"softmax_after_top_k", Weigh::softmax_after_top_k}});
  set_name<GroupScore>(json, "group_score", spec.group_score,
                       {{"sum_top_2", GroupScore::sum_top_2}});
  set_float(json, "renormalize_epsilon", spec.renormalize_epsilon);
  set_float(json, "renormalize_minimum", spec.renormalize_minimum);
  set_float(json, "norm_order", spec.norm_order);
  set_float(json, "scale", spec.scale);
  set_float(json, "noise", spec.noise);
  set_float(json, "jitter", spec.jitter);
  set_int(json, "num_groups", spec.num_groups);
  set_int(json, "top_groups", spec.top_groups);
  set_int(json, "num_devices", spec.num_devices);
  set_int(json, "max_devices", spec.max_devices);
  set_bool(json, "selection_bias", spec.selection_bias);
  set_bool(json, "random_second", spec.random_second);
  set_bool(json, "weight_on_input", spec.weight_on_input);
  set_bool(json, "trained_across_tokens", spec.trained_across_tokens);
  return spec;
}

struct Golden {
  Json json;
  RouterSpec spec;
  std::vector<float> logits, bias, noise_logits, weight;
  std::vector<int32_t> device_of, expert;
  SelectInput in;

  explicit Golden(const std::string& path) : json(read_json_file(path).value()) {
    spec = read_spec(member(json, "spec"));
    logits = numbers<float>(member(json, "logits"));
    weight = numbers<float>(member(json, "weight"));
    expert = numbers<int32_t>(member(json, "expert"));
    if (const Json* values = json.find("bias")) bias = numbers<float>(*values);
    if (const Json* values = json.find("noise_logits")) noise_logits = numbers<float>(*values);
    if (const Json* values = json.find("device_of")) device_of = numbers<int32_t>(*values);
    if (const Json* place = json.find("random"); place != nullptr && place->is_object()) {
      in.random = {static_cast<uint64_t>(member(*place, "seed").as_int()),
                   static_cast<uint32_t>(member(*place, "layer").as_int()),
                   static_cast<uint64_t>(member(*place, "first_token").as_int())};
    }
    in.logits = logits.data();
    in.tokens = static_cast<int64_t>(logits.size()) / spec.num_experts;
    if (!bias.empty()) in.bias = bias.data();
    if (!noise_logits.empty()) in.noise_logits = noise_logits.data();
    if (!device_of.empty()) in.device_of = device_of.data();
  }
};

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  const std::filesystem::path folder = SWITCHYARD_SOURCE_DIR "/tests/golden/routers";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of(const std::string& name) {
  return SWITCHYARD_SOURCE_DIR "/tests/golden/routers/" + name + ".json";
}

class RouterGolden : public testing::TestWithParam<std::string> {};

TEST_P(RouterGolden, PicksAndWeightsAreThoseOfTheReference) {
  const Golden golden(path_of(GetParam()));
  const Picks found = select_picks(golden.spec, golden.logits, golden.in, 2);
  ASSERT_EQ(found.expert.size(), golden.expert.size());
  EXPECT_EQ(found.unusable_rows, 0);
  for (size_t i = 0; i < golden.expert.size(); ++i) {
    const float wanted = golden.weight[i];
    // A score that vanished in f32 orders nothing in the reference; logits still do.
    if (wanted > 0 || golden.expert[i] < 0) {
      EXPECT_EQ(found.expert[i], golden.expert[i]) << "pick " << i;
    }
    EXPECT_NEAR(found.weight[i], wanted, 3e-6f * wanted + 1e-37f) << "pick " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RouterGolden, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

TEST(RouterGoldens, EverySelectorHasOne) {
  std::set<std::string_view> seen;
  for (const std::string& name : golden_names()) {
    const Golden golden(path_of(name));
    const std::string_view selector = golden.spec.selector;
    for (const Selector& known : selectors()) {
      if (known.name == selector) seen.insert(known.name);
    }
  }
  for (const Selector& selector : selectors()) EXPECT_EQ(seen.count(selector.name), 1u);
}

TEST(RouterGoldens, FiguresOfTheNoisyGate) {
  for (const char* name : {"noisy_top_k", "noisy_top_k_constant"}) {
    const Golden golden(path_of(name));
    const Picks picks = select_picks(golden.spec, golden.logits, golden.in);
    const auto num_experts = static_cast<size_t>(golden.spec.num_experts);
    std::vector<double> importance(num_experts, 0), load(num_experts, 0);
    std::vector<int32_t> expert = picks.expert;
    std::vector<float> weight = picks.weight;
    add_importance(golden.spec, {expert.data(), weight.data()}, golden.in.tokens, importance);
    add_smooth_load(golden.spec, golden.in, load);
    const auto wanted_importance = numbers<double>(member(golden.json, "importance"));
    const auto wanted_load = numbers<double>(member(golden.json, "load"));
    for (size_t e = 0; e < num_experts; ++e) {
      EXPECT_NEAR(importance[e], wanted_importance[e], 1e-5);
      EXPECT_NEAR(load[e], wanted_load[e], 2e-4);  // Phi of distances in f32
    }
    EXPECT_NEAR(squared_variation(importance),
                member(golden.json, "importance_variation").as_double(), 1e-5);
    EXPECT_NEAR(squared_variation(load), member(golden.json, "load_variation").as_double(), 1e-4);
  }
}

}  // namespace
}  // namespace switchyard::moe
