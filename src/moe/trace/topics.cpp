// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/topics.h"

#include <algorithm>
#include <cmath>

namespace switchyard::moe {
namespace {

using Topics = std::vector<TopicMeasures>;

/// Whose all tokens of a step are, or -2 when several topics share it.
int32_t topic_of(const TraceStep& step) {
  const std::span<const TraceSequence> sequences = step.sequences();
  const int32_t first = sequences.front().topic;
  const bool one = std::all_of(sequences.begin(), sequences.end(),
                               [&](const TraceSequence& s) { return s.topic == first; });
  return one ? first : -2;
}

void add_picks(const TraceView& trace, const TraceStep& step, Topics& topics) {
  const auto top_k = static_cast<size_t>(trace.header().top_k);
  for (int layer = 0; layer < trace.header().num_layers; ++layer) {
    std::span<const uint16_t> picks = step.picks(layer);
    for (const TraceSequence& sequence : step.sequences()) {
      const auto own = picks.first(sequence.tokens * top_k);
      picks = picks.subspan(own.size());
      if (sequence.topic < 0) continue;
      LoadCounts& load =
          topics[static_cast<size_t>(sequence.topic)].load[static_cast<size_t>(layer)];
      for (const uint16_t expert : own)
        if (expert != kDroppedPick) ++load[expert];
    }
  }
}

void add_step(const TraceView& trace, const TraceStep& step, TopicSkew& skew) {
  const int32_t topic = topic_of(step);
  if (!trace.header().has_picks) {
    if (topic == -2) skew.mixed_tokens += step.num_tokens();
    if (topic == -1) skew.unlabelled_tokens += step.num_tokens();
    if (topic < 0) return;
    TopicMeasures& to = skew.topics[static_cast<size_t>(topic)];
    to.tokens += step.num_tokens();
    for (size_t layer = 0; layer < to.load.size(); ++layer)
      add_load(to.load[layer], step.demand(static_cast<int>(layer)));
    return;
  }
  add_picks(trace, step, skew.topics);
  for (const TraceSequence& sequence : step.sequences()) {
    int64_t& tokens = sequence.topic < 0 ? skew.unlabelled_tokens
                                         : skew.topics[static_cast<size_t>(sequence.topic)].tokens;
    tokens += sequence.tokens;
  }
}

/// [E] shares of a layer, every topic with the same weight.
std::vector<double> even_mixture(const Topics& topics, size_t layer, int num_experts) {
  std::vector<double> mixed(static_cast<size_t>(num_experts));
  for (const TopicMeasures& topic : topics) {
    const std::vector<double> shares = inclusion(topic.load[layer], 1);
    for (size_t e = 0; e < mixed.size(); ++e)
      mixed[e] += shares[e] / static_cast<double>(topics.size());
  }
  return mixed;
}

void compare(TopicSkew& skew, size_t layer, int num_experts) {
  const std::vector<double> mixed = even_mixture(skew.topics, layer, num_experts);
  skew.mixed_imbalance.push_back(*std::max_element(mixed.begin(), mixed.end()) * num_experts);
  for (TopicMeasures& topic : skew.topics) {
    const std::vector<double> shares = inclusion(topic.load[layer], 1);
    double sum = 0;
    for (size_t e = 0; e < mixed.size(); ++e) sum += std::abs(shares[e] - mixed[e]);
    topic.distance.push_back(sum / 2);
    topic.imbalance.push_back(imbalance(topic.load[layer]));
  }
}

}  // namespace

TopicSkew measure_topics(const TraceView& trace) {
  const auto num_layers = static_cast<size_t>(trace.header().num_layers);
  const int num_experts = trace.header().num_experts;
  TopicSkew skew;
  for (const std::string& name : trace.topics()) {
    TopicMeasures& topic = skew.topics.emplace_back();
    topic.name = name;
    topic.load.assign(num_layers, LoadCounts(static_cast<size_t>(num_experts)));
  }
  for (int64_t i = 0; i < trace.num_steps(); ++i) add_step(trace, trace.step(i), skew);
  std::erase_if(skew.topics, [](const TopicMeasures& topic) { return topic.tokens == 0; });
  if (skew.topics.empty()) return skew;
  for (size_t layer = 0; layer < num_layers; ++layer) compare(skew, layer, num_experts);
  return skew;
}

}  // namespace switchyard::moe
