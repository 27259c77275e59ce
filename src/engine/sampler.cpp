// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "engine/selection.h"

namespace switchyard::engine {

/// The private room of one thread.
struct Sampler::Scratch {
  explicit Scratch(int vocab)
      : room(std::make_unique_for_overwrite<Candidate[]>(static_cast<size_t>(vocab))),
        candidates(room.get(), static_cast<size_t>(vocab)),
        count(static_cast<size_t>(vocab), 0) {}
  std::unique_ptr<Candidate[]>
      room;                         // not initialised: pages that nobody selects into cost nothing
  std::span<Candidate> candidates;  // [V] the kept tokens, once a stage has selected
  std::vector<uint32_t> count;      // [V] occurrences of a token; all zero between stages
  std::vector<float> raw;           // [V] logits as they came, once a row has asked for them
};

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// A row on its way through the stages.
struct Row {
  Row(const SampleRow& sample, Sampler::Scratch& room) : in(sample), scratch(room) {}

  const SamplingParams& params() const { return *in.params; }
  bool decided() const { return pick.token >= 0 || pick.non_finite || pick.none_allowed; }
  int64_t vocab() const { return static_cast<int64_t>(in.logits.size()); }
  std::span<const int32_t> output() const {
    return in.tokens.subspan(static_cast<size_t>(in.prompt_tokens));
  }
  std::span<Candidate> kept() const {
    return scratch.candidates.first(static_cast<size_t>(num_kept));
  }
  bool all_kept() const { return num_kept < 0; }

  const SampleRow& in;
  Sampler::Scratch& scratch;
  Weigher weigh;          // by the logits after the penalties
  double log_total = 0;   // of the weights of the logits as they came
  int64_t num_kept = -1;  // tokens in kept(); negative: all of the vocabulary, kept() is not filled
  Pick pick;
};

void check_finite(Row& row) { row.pick.non_finite = !all_finite(row.in.logits); }

/// log sum exp in two passes, so that no logit overflows it.
double log_sum_exp(std::span<const float> logits) {
  const double largest = static_cast<double>(find_largest(logits).logit);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

/// Before any stage changes the logits.
void report_likeliest(Row& row) {
  if (row.in.logprobs == nullptr || !row.params().logprobs || row.pick.non_finite) return;
  row.scratch.raw.assign(row.in.logits.begin(), row.in.logits.end());
  row.log_total = log_sum_exp(row.in.logits);
  std::vector<TokenLogprobs::One>& top = row.in.logprobs->top;
  top.clear();
  const int64_t count = select_best(row.in.logits, *row.params().logprobs, row.scratch.candidates);
  for (const Candidate& best : row.scratch.candidates.first(static_cast<size_t>(count)))
    top.push_back(
        {best.token, static_cast<float>(static_cast<double>(best.logit) - row.log_total)});
}

void report_chosen(const Row& row) {
  if (row.in.logprobs == nullptr || !row.params().logprobs || row.pick.token < 0) return;
  const float logit = row.scratch.raw[static_cast<size_t>(row.pick.token)];
  row.in.logprobs->chosen = {row.pick.token,
                             static_cast<float>(static_cast<double>(logit) - row.log_total)};
}

float clamp_finite(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMost, kMost);
}

void logit_bias(Row& row) {
  for (const TokenBias& bias : row.params().logit_bias) {
    float& logit = row.in.logits[static_cast<size_t>(bias.token)];
    logit = clamp_finite(logit + bias.bias);
  }
}

/// Of the prompt too. A positive logit is divided, a negative one multiplied, once per distinct
/// token.
void repetition_penalty(Row& row) {
  const float penalty = row.params().repetition_penalty;
  if (penalty == 1.0f) return;
  auto& seen = row.scratch.count;
  for (const int32_t token : row.in.tokens) {
    if (seen[static_cast<size_t>(token)]++ != 0) continue;
    float& logit = row.in.logits[static_cast<size_t>(token)];
    logit = clamp_finite(logit > 0 ? logit / penalty : logit * penalty);
  }
  for (const int32_t token : row.in.tokens) seen[static_cast<size_t>(token)] = 0;
}

/// Of the output alone.
void presence_and_frequency_penalty(Row& row) {
  const float presence = row.params().presence_penalty, frequency = row.params().frequency_penalty;
  if (presence == 0.0f && frequency == 0.0f) return;
  auto& count = row.scratch.count;
  for (const int32_t token : row.output()) ++count[static_cast<size_t>(token)];
  for (const int32_t token : row.output()) {
    uint32_t& times = count[static_cast<size_t>(token)];
    if (times == 0) continue;
    float& logit = row.in.logits[static_cast<size_t>(token)];
    logit = clamp_finite(logit - presence - frequency * static_cast<float>(times));
    times = 0;
  }
}

void mask_ends_before_min_tokens(Row& row) {
  if (static_cast<int>(row.output().size()) >= row.params().min_tokens) return;
  for (const int32_t token : row.in.end_tokens)
    row.in.logits[static_cast<size_t>(token)] = kMinusInfinity;
}

/// Leaves the tokens that a constraint allows.
void constrain(Row& row) {
  const std::span<const uint64_t> allowed = row.in.allowed;
  if (allowed.empty()) return;
  uint64_t any = 0;
  for (size_t word = 0; word < allowed.size(); ++word) {
    any |= allowed[word];
    if (~allowed[word] == 0) continue;
    const std::span<float> logits = row.in.logits.subspan(64 * word);
    for (size_t bit = 0; bit < std::min<size_t>(64, logits.size()); ++bit)
      if ((allowed[word] >> bit & 1) == 0) logits[bit] = kMinusInfinity;
  }
  row.pick.none_allowed = any == 0;
}

/// Zero decides at once. Any other is applied where weights are computed: it changes no order.
void temperature(Row& row) {
  const Candidate largest = find_largest(row.in.logits);
  row.weigh.largest = static_cast<double>(largest.logit);
  if (row.params().temperature == 0.0f) {
    row.pick.token = largest.token;
  } else {
    row.weigh.inverse_temperature = 1.0 / static_cast<double>(row.params().temperature);
  }
}

void keep_best(Row& row, int64_t count) {
  row.num_kept = select_best(row.in.logits, count, row.scratch.candidates);
}

void top_k(Row& row) {
  const int64_t k = row.params().top_k;
  if (k > 0 && k < row.vocab()) keep_best(row, k);
}

/// Cuts the kept tokens, best first, where their weights reach `mass`. False when they do not.
bool cut_at_mass(Row& row, double mass) {
  double sum = 0;
  for (int64_t i = 0; i < row.num_kept; ++i) {
    sum += row.weigh(row.kept()[static_cast<size_t>(i)].logit);
    if (sum < mass) continue;
    row.num_kept = i + 1;
    return true;
  }
  return false;
}

double total_weight(const Row& row) {
  double total = 0;
  if (row.all_kept()) {
    for (const float logit : row.in.logits) total += row.weigh(logit);
  } else {
    for (const Candidate& candidate : row.kept()) total += row.weigh(candidate.logit);
  }
  return total;
}

/// The fewest best tokens whose probabilities reach top_p. Where nothing is selected yet, a few
/// guesses of how many that is come first: most distributions need a few dozen of 150,000.
void top_p(Row& row) {
  if (row.params().top_p >= 1.0f) return;
  const double mass = static_cast<double>(row.params().top_p) * total_weight(row);
  if (!row.all_kept()) {
    cut_at_mass(row, mass);
    return;
  }
  for (const int64_t guess : {64, 512}) {
    keep_best(row, guess);
    if (cut_at_mass(row, mass)) return;
  }
  for (size_t i = 0; i < row.in.logits.size(); ++i)
    row.scratch.candidates[i] = {row.in.logits[i], static_cast<int32_t>(i)};
  row.num_kept = select_mass(row.scratch.candidates, mass, row.weigh);
}

/// Tokens at least min_p times as likely as the likeliest.
void min_p(Row& row) {
  if (row.params().min_p <= 0.0f) return;
  const double least = row.weigh.largest + std::log(static_cast<double>(row.params().min_p)) /
                                               row.weigh.inverse_temperature;
  int64_t used = 0;
  const auto keep = [&](Candidate candidate) {
    if (static_cast<double>(candidate.logit) >= least)
      row.scratch.candidates[static_cast<size_t>(used++)] = candidate;
  };
  if (row.all_kept()) {
    for (size_t i = 0; i < row.in.logits.size(); ++i)
      keep({row.in.logits[i], static_cast<int32_t>(i)});
  } else {
    for (const Candidate& candidate : row.kept()) keep(candidate);
  }
  row.num_kept = used;
}

/// Walks the weights up to a random share of their sum.
void draw(Row& row) {
  const uint64_t position = row.in.tokens.size();
  const PhiloxBlock random =
      philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                 {static_cast<uint32_t>(row.in.seed), static_cast<uint32_t>(row.in.seed >> 32)});
  double left = unit_double(random[0], random[1]) * total_weight(row);
  int32_t token = -1;
  const auto visit = [&](float logit, int32_t candidate) {
    const double weight = row.weigh(logit);
    if (weight <= 0) return false;
    token = candidate;  // the last one of any weight, should rounding leave a rest
    return (left -= weight) < 0;
  };
  if (row.all_kept()) {
    for (size_t i = 0; i < row.in.logits.size(); ++i)
      if (visit(row.in.logits[i], static_cast<int32_t>(i))) break;
  } else {
    for (const Candidate& candidate : row.kept())
      if (visit(candidate.logit, candidate.token)) break;
  }
  row.pick.token = std::max(token, 0);  // zero: everything was masked
}

/// The stages, in the order of request.h. To add one: a function above, a line here.
using Stage = void (*)(Row&);
constexpr Stage kStages[] = {
    check_finite,
    report_likeliest,
    logit_bias,
    repetition_penalty,
    presence_and_frequency_penalty,
    mask_ends_before_min_tokens,
    constrain,
    temperature,
    top_k,
    top_p,
    min_p,
    draw,
};

Pick sample(const SampleRow& in, Sampler::Scratch& scratch) {
  Row row(in, scratch);
  for (const Stage stage : kStages) {
    stage(row);
    if (row.decided()) break;
  }
  report_chosen(row);
  return row.pick;
}

}  // namespace

Sampler::Sampler(int vocab, int max_rows, Pool& pool)
    : pool_(pool), picks_(static_cast<size_t>(max_rows)) {
  SWITCHYARD_CHECK(vocab > 0 && max_rows > 0, "{} tokens, {} rows", vocab, max_rows);
  for (int thread = 0; thread < pool.num_threads(); ++thread)
    scratch_.push_back(std::make_unique<Scratch>(vocab));
}

Sampler::~Sampler() = default;

std::span<const Pick> Sampler::pick(std::span<SampleRow> rows) {
  SWITCHYARD_CHECK(rows.size() <= picks_.size(), "{} rows of at most {}", rows.size(),
                   picks_.size());
  pool_.for_each(static_cast<int64_t>(rows.size()), [&](int64_t i, int thread) {
    const auto row = static_cast<size_t>(i);
    picks_[row] = sample(rows[row], *scratch_[static_cast<size_t>(thread)]);
  });
  return {picks_.data(), rows.size()};
}

}  // namespace switchyard::engine
