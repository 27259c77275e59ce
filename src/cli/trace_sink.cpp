// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_sink.h"

namespace switchyard::cli {

Status TraceSink::open(const std::string& path, const moe::TraceHeader& header) {
  SWITCHYARD_ASSIGN(auto writer, moe::TraceWriter::create(path, header));
  writer_ = std::move(writer);
  return {};
}

void TraceSink::push(const RoutedStep& step) {
  if (writer_ && status_.ok()) status_ = write(step);
}

Status TraceSink::finish() {
  SWITCHYARD_TRY(status_);
  return writer_ ? writer_->finish() : Status();
}

Status TraceSink::write(const RoutedStep& step) {
  demand_.clear();
  dropped_.clear();
  weights_.clear();
  picks_.clear();
  SWITCHYARD_TRY(add_sequences(step));
  for (const RoutedLayer& layer : step.layers) SWITCHYARD_TRY(add_layer(layer, step.tokens));
  return writer_->append({step.tokens, static_cast<moe::TraceStage>(step.stage), sequences_,
                          demand_, dropped_, weights_, picks_});
}

Status TraceSink::add_sequences(const RoutedStep& step) {
  sequences_.clear();
  for (const RoutedSequence& sequence : step.sequences) {
    int32_t topic = -1;
    if (!sequence.topic.empty()) {
      SWITCHYARD_ASSIGN(topic, writer_->topic(sequence.topic));
    }
    sequences_.push_back({sequence.request, static_cast<uint32_t>(sequence.first_position),
                          static_cast<uint32_t>(sequence.tokens), topic, 0});
  }
  return {};
}

Status TraceSink::add_layer(const RoutedLayer& layer, int64_t tokens) {
  const moe::TraceHeader& header = writer_->header();
  const auto picks = static_cast<size_t>(header.has_picks ? tokens * header.top_k : 0);
  if (layer.demand.size() != static_cast<size_t>(header.num_experts) || layer.picks.size() != picks)
    return fail(Code::unsupported,
                "a routing trace holds layers of one shape: expected {} experts and {} picks a "
                "token, found a layer of {} experts",
                header.num_experts, header.top_k, layer.demand.size());
  demand_.insert(demand_.end(), layer.demand.begin(), layer.demand.end());
  dropped_.push_back(static_cast<uint32_t>(layer.dropped));
  weights_.insert(weights_.end(), layer.weights.begin(), layer.weights.end());
  // -1, a dropped pick, becomes kDroppedPick.
  for (const int32_t expert : layer.picks) picks_.push_back(static_cast<uint16_t>(expert));
  return {};
}

}  // namespace switchyard::cli
