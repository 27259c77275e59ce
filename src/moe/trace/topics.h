// SPDX-License-Identifier: Apache-2.0
// Topic skew: how the load of one topic differs from that of all. A router that was balanced over
// mixed batches in training may be far from even on the traffic of one topic.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "moe/trace/measures.h"
#include "moe/trace/reader.h"

namespace switchyard::moe {

struct TopicMeasures {
  std::string name;
  int64_t tokens = 0;
  std::vector<LoadCounts> load;   ///< [layer]
  std::vector<double> imbalance;  ///< [layer] of that load: what large batches of this topic keep
  std::vector<double> distance;   ///< [layer] from the even mixture of all topics
};

struct TopicSkew {
  std::vector<TopicMeasures> topics;  ///< in the order of the trace; those without tokens left out
  /// [layer] imbalance of the even mixture: every topic with the same weight.
  std::vector<double> mixed_imbalance;
  /// Tokens that could not be told apart: in a trace without picks, those of steps that held more
  /// than one topic; in any, those without a topic.
  int64_t mixed_tokens = 0, unlabelled_tokens = 0;
};

TopicSkew measure_topics(const TraceView& trace);

}  // namespace switchyard::moe
