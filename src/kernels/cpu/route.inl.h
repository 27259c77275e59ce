// SPDX-License-Identifier: Apache-2.0
// Token choice without limits to groups or devices, written once over Lanes. The definition is that of
// moe/route/token_choice; where scores decide who is picked they are formed by the same scalar functions in the same
// order, so that picks agree bit for bit.

// Experts are looked for in value[0, E), in registers: what is taken becomes NaN, which no maximum and no comparison
// finds again. (A -infinity would be found twice.) Behind E there is NaN up to a whole register.
inline float nan_value() { return __builtin_nanf(""); }

// Copies a row. False when it holds a NaN, or when its largest value is not finite.
inline bool load_row(const float* z, int count, float* value, float* highest) {
  constexpr int kWidth = Lanes::kWidth;
  constexpr uint32_t kAll = (1u << kWidth) - 1;
  Lanes::F best = Lanes::set(-__builtin_inff());
  uint32_t numbers = kAll;
  int e = 0;
  for (; e + kWidth <= count; e += kWidth) {
    const Lanes::F v = Lanes::load(z + e);
    numbers &= Lanes::equal(v, v);
    best = Lanes::max(v, best);
    Lanes::store(value + e, v);
  }
  float largest = Lanes::largest(best);
  bool usable = numbers == kAll;
  for (; e < count; ++e) {
    usable = usable && z[e] == z[e];
    largest = z[e] > largest ? z[e] : largest;
    value[e] = z[e];
  }
  for (; e % kWidth != 0; ++e) value[e] = nan_value();
  *highest = largest;
  return usable && largest > -__builtin_inff() && largest < __builtin_inff();
}

// The K largest, equal ones by the lower expert. K is at most E and no value of an expert is NaN, so each round finds
// one.
inline void take_best(float* value, int count, int k, int32_t* expert) {
  for (int i = 0; i < k; ++i) {
    Lanes::F best = Lanes::set(-__builtin_inff());
    for (int e = 0; e < count; e += Lanes::kWidth) best = Lanes::max(Lanes::load(value + e), best);
    const Lanes::F wanted = Lanes::set(Lanes::largest(best));
    int e = 0;
    uint32_t found = Lanes::equal(Lanes::load(value), wanted);
    while (found == 0) {
      e += Lanes::kWidth;
      found = Lanes::equal(Lanes::load(value + e), wanted);
    }
    const int lane = __builtin_ctz(found);
    expert[i] = e + lane;
    // A whole register, since the next round reads whole registers: a narrow write would make it wait.
    Lanes::store(value + e, Lanes::select(Lanes::between(lane, lane + 1), Lanes::set(nan_value()),
                                          Lanes::load(value + e)));
  }
}

// Sum over all experts of exp(z - highest).
inline float exp_sum(const float* z, int count, float highest) {
  Lanes::F sum = Lanes::zero();
  int e = 0;
  for (; e + Lanes::kWidth <= count; e += Lanes::kWidth) {
    sum = Lanes::add(sum, Lanes::exp(Lanes::sub(Lanes::load(z + e), Lanes::set(highest))));
  }
  float total = Lanes::sum(sum);
  for (; e < count; ++e) total += __builtin_expf(z[e] - highest);
  return total;
}

// value becomes score + bias, as form_choice() of token choice has it.
inline void add_bias(const RouterSpec& spec, const float* z, float highest, const float* bias,
                     float* value) {
  float sum = 1;
  if (spec.score == Score::softmax) {
    sum = 0;
    for (int e = 0; e < spec.num_experts; ++e) sum += score_of(Score::softmax, z[e], highest);
  }
  for (int e = 0; e < spec.num_experts; ++e) {
    value[e] = choice_of(score_of(spec.score, z[e], highest) / sum, bias[e]);
  }
}

// Returns whether the row was usable.
inline bool route_row(const RouterSpec& spec, const float* z, const float* bias, int32_t* expert,
                      float* weight) {
  const int num_experts = spec.num_experts, k = spec.top_k;
  float value[kMaxExperts + Lanes::kWidth];
  float highest;
  if (!load_row(z, num_experts, value, &highest)) {
    for (int i = 0; i < k; ++i) {
      expert[i] = i;
      weight[i] = 0;
    }
    return false;
  }
  if (bias != nullptr) add_bias(spec, z, highest, bias, value);
  take_best(value, num_experts, k, expert);
  for (int i = 0; i < k; ++i) weight[i] = score_of(spec.score, z[expert[i]], highest);
  finish_weights(spec, weighs_by_sum(spec) ? exp_sum(z, num_experts, highest) : 1.0f, weight);
  return true;
}

inline void route_all(const Route::Problem& problem, const Route::Args& args,
                      const Stream& stream) {
  const RouterSpec& spec = problem.spec;
  const int64_t num_experts = spec.num_experts, k = spec.top_k;
  const float* bias = spec.selection_bias ? args.in.bias : nullptr;
  SWITCHYARD_CHECK(bias != nullptr || !spec.selection_bias, "a selection bias without values");
  int64_t unusable_rows = 0;
  // 8 k logits take some 10 microseconds.
  stream.pool().for_range(
      args.in.tokens, 1 + 8192 / num_experts, [&](int64_t begin, int64_t end, int) {
        int64_t mine = 0;
        for (int64_t t = begin; t < end; ++t) {
          const bool usable = route_row(spec, args.in.logits + t * num_experts, bias,
                                        args.out.expert + t * k, args.out.weight + t * k);
          mine += usable ? 0 : 1;
        }
        __atomic_fetch_add(&unusable_rows, mine, __ATOMIC_RELAXED);
      });
  *args.unusable_rows = unusable_rows;
}
