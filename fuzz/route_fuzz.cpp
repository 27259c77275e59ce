// SPDX-License-Identifier: Apache-2.0
// Routing: any spec is refused with its rule or routes any logits. Picks are distinct, weights finite; token choice
// picks what the naive router of tests/cases/route.h picks; every kernel picks what its selector picks.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "cases/route.h"
#include "device/cpu_features.h"
#include "kernels/select.h"
#include "moe/route/table.h"

namespace switchyard {
namespace {

// Takes the input apart; zeros when it is used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  bool flag() { return byte() % 2 != 0; }
  // Of a list that holds what is common and what is at the edge.
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[byte() % values.size()];
  }
  // Small whole numbers, so that ties are common; halves; or any four bytes.
  float number() {
    const uint8_t kind = byte();
    if (kind < 200) return static_cast<float>(static_cast<int8_t>(byte()) / 8);
    if (kind < 230) return static_cast<float>(static_cast<int8_t>(byte())) * 0.5f;
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits = bits << 8 | byte();
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

RouterSpec read_spec(Bytes& in) {
  RouterSpec s;
  s.selector = moe::selectors()[in.byte() % moe::selectors().size()].name;
  s.num_experts = in.one_of({1, 2, 3, 4, 8, 12, 16, 17, 32, 64, 0, -1, kMaxExperts + 1});
  s.top_k = in.one_of({1, 2, 2, 3, 4, 8, 16, 0, -1, 65});
  s.score = in.one_of({Score::softmax, Score::sigmoid, Score::sqrt_softplus});
  s.weigh = in.one_of({Weigh::raw, Weigh::renormalize, Weigh::softmax_after_top_k});
  s.scale = in.one_of({1.0f, 2.5f, 16.0f, 0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()});
  s.renormalize_epsilon = in.one_of({0.0f, 0.0f, 1e-20f, 1e-6f, -1.0f});
  s.renormalize_minimum = in.one_of({0.0f, 0.0f, 1e-12f, 0.5f});
  s.norm_order = in.one_of({1.0f, 1.0f, 1.0f, 2.0f, 3.5f, 0.0f});
  s.selection_bias = in.flag();
  s.noise = in.one_of({0.0f, 0.0f, 1.0f, 1e30f, std::numeric_limits<float>::infinity()});
  s.jitter = in.one_of({0.0f, 0.0f, 0.01f, 5.0f, -1.0f});
  s.random_second = in.byte() % 4 == 1;
  s.num_groups = in.one_of({1, 1, 1, 2, 4, 8, 0, 5});
  s.top_groups = in.one_of({1, 1, 2, 3, 0});
  s.group_score = in.one_of({GroupScore::max, GroupScore::sum_top_2});
  s.num_devices = in.one_of({1, 1, 2, 4, 3, 0});
  s.max_devices = in.one_of({0, 0, 0, 1, 2, -1});
  s.trained_across_tokens = in.flag();
  return s;
}

struct Case {
  RouterSpec spec;
  std::vector<float> logits, bias;
  std::vector<int32_t> device_of;
  SelectInput in;
};

void fill(Case& c, Bytes& bytes) {
  const auto num_experts = static_cast<size_t>(c.spec.num_experts);
  c.in.tokens = bytes.byte() % 5;
  c.in.random = {bytes.byte(), bytes.byte(), bytes.byte()};
  for (size_t e = 0; e < num_experts; ++e) {
    const float bias = bytes.number();  // as a router accepts it
    c.bias.push_back(std::isnan(bias) || bias > 1e38f ? 0.0f : bias);
    // In turn, so that every device holds its share.
    c.device_of.push_back(static_cast<int32_t>(e) % std::max(c.spec.num_devices, 1));
  }
  for (size_t i = 0; i < static_cast<size_t>(c.in.tokens) * num_experts; ++i) {
    c.logits.push_back(bytes.number());
  }
  c.in.logits = c.logits.data();
  if (c.spec.selection_bias) c.in.bias = c.bias.data();
  if (bytes.flag()) c.in.device_of = c.device_of.data();
}

struct Picks {
  std::vector<int32_t> expert;
  std::vector<float> weight;
  int64_t unusable_rows = -1;

  explicit Picks(size_t count) : expert(count, -77), weight(count, -77.0f) {}
};

void check_picks(const Case& c, const Picks& picks, size_t columns) {
  for (size_t at = 0; at < picks.expert.size(); at += columns) {
    std::vector<bool> used(static_cast<size_t>(c.spec.num_experts), false);
    for (size_t i = at; i < at + columns; ++i) {
      const int32_t e = picks.expert[i];
      const float w = picks.weight[i];
      SWITCHYARD_CHECK(e >= -1 && e < c.spec.num_experts, "expert {}", e);
      SWITCHYARD_CHECK(std::isfinite(w) && w >= 0, "weight {}", w);
      SWITCHYARD_CHECK(e >= 0 || w == 0, "weight {} of no expert", w);
      if (e < 0) continue;
      SWITCHYARD_CHECK(!used[static_cast<size_t>(e)], "expert {} twice", e);
      used[static_cast<size_t>(e)] = true;
    }
  }
}

void check_naive(const Case& c, const Picks& picks) {
  const auto num_experts = static_cast<size_t>(c.spec.num_experts);
  const auto k = static_cast<size_t>(c.spec.top_k);
  int64_t unusable_rows = 0;
  for (size_t t = 0; t < static_cast<size_t>(c.in.tokens); ++t) {
    const std::span<const float> z(&c.logits[t * num_experts], num_experts);
    const auto row = cases::naive_token_choice(c.spec, z, c.in.bias, c.in.device_of);
    unusable_rows += row.usable ? 0 : 1;
    for (size_t i = 0; i < k; ++i) {
      SWITCHYARD_CHECK(picks.expert[t * k + i] == row.expert[i], "row {} pick {}: {}, naive {}", t,
                       i, picks.expert[t * k + i], row.expert[i]);
    }
    SWITCHYARD_CHECK(cases::weights_agree(c.spec, z, row, &picks.weight[t * k]), "row {}", t);
  }
  SWITCHYARD_CHECK(picks.unusable_rows == unusable_rows, "{} unusable rows, naive {}",
                   picks.unusable_rows, unusable_rows);
}

void check_kernels(const Case& c, const moe::Selector& selector, const Picks& wanted,
                   const Stream& stream) {
  const Route::Problem problem{c.spec, selector.select};
  for (const Kernel<Route>& kernel : kernels::table<Route>()) {
    if ((kernel.needs.cpu_features & ~cpu_features().usable) != 0) continue;
    if (kernel.accept(problem).refused != nullptr) continue;
    Picks found(wanted.expert.size());
    kernel.run(problem, {c.in, {found.expert.data(), found.weight.data()}, &found.unusable_rows},
               {}, stream);
    SWITCHYARD_CHECK(found.expert == wanted.expert, "{} has other picks", kernel.name);
    SWITCHYARD_CHECK(found.unusable_rows == wanted.unusable_rows, "{}", kernel.name);
    for (size_t i = 0; i < wanted.weight.size(); ++i) {
      const float w = wanted.weight[i];
      SWITCHYARD_CHECK(std::abs(found.weight[i] - w) <= 1e-5f * w + 1e-35f, "{}: weight {}, not {}",
                       kernel.name, found.weight[i], w);
    }
  }
}

}  // namespace
}  // namespace switchyard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;
  static Pool pool({.num_threads = 1, .pin = false});
  const Stream stream({}, pool);
  Bytes bytes(data, size);
  Case c;
  c.spec = read_spec(bytes);
  const moe::Selector& selector = **moe::find_selector(c.spec.selector);
  const Status status = selector.check(c.spec);
  if (!status.ok()) {
    SWITCHYARD_CHECK(status.error().message.starts_with("router: "), "{}", status.error().message);
    return 0;
  }
  fill(c, bytes);
  const auto columns = static_cast<size_t>(moe::columns_of(selector, c.spec));
  Picks picks(static_cast<size_t>(c.in.tokens) * columns);
  picks.unusable_rows =
      selector.select(c.spec, c.in, {picks.expert.data(), picks.weight.data()}, stream);
  check_picks(c, picks, columns);
  if (c.spec.selector == "token_choice") check_naive(c, picks);
  check_kernels(c, selector, picks, stream);
  return 0;
}
