// SPDX-License-Identifier: Apache-2.0
// Traces for tests, made of what each token picked.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/temp_folder.h"
#include "moe/trace/reader.h"
#include "moe/trace/writer.h"

namespace switchyard::moe {

/// One sequence of a step; picks[layer][token * K + k].
struct MadeSequence {
  uint64_t request = 0;
  uint32_t first_position = 0;
  std::string topic;
  std::vector<std::vector<uint16_t>> picks;
};
using MadeStep = std::vector<MadeSequence>;

/// A trace in a folder of its own.
class MadeTrace {
 public:
  MadeTrace(const TraceHeader& header, const std::vector<MadeStep>& steps) : header_(header) {
    auto writer = TraceWriter::create(path(), header);
    SWITCHYARD_CHECK(writer.ok());
    for (const MadeStep& step : steps) append(*writer, step);
    SWITCHYARD_CHECK(writer->finish().ok());
    auto reader = TraceReader::open(path());
    SWITCHYARD_CHECK(reader.ok(), "{}", reader.error().message);
    reader_ = std::make_unique<TraceReader>(*std::move(reader));
  }

  const TraceView& view() const { return reader_->view(); }
  std::string path() const { return folder_.path("made.swt"); }

 private:
  void append(TraceWriter& writer, const MadeStep& step) {
    const auto layers = static_cast<size_t>(header_.num_layers);
    const auto experts = static_cast<size_t>(header_.num_experts);
    std::vector<TraceSequence> sequences;
    std::vector<uint32_t> demand(layers * experts), dropped(layers);
    std::vector<uint16_t> picks;
    int64_t tokens = 0;
    for (const MadeSequence& s : step) {
      const auto count = static_cast<uint32_t>(s.picks[0].size() / header_.top_k);
      const int32_t topic = s.topic.empty() ? -1 : *writer.topic(s.topic);
      sequences.push_back({s.request, s.first_position, count, topic, 0});
      tokens += count;
    }
    for (size_t layer = 0; layer < layers; ++layer)
      for (const MadeSequence& s : step)
        for (const uint16_t expert : s.picks[layer]) {
          ++demand[layer * experts + expert];
          if (header_.has_picks) picks.push_back(expert);
        }
    const std::vector<float> weights(picks.size(), 0.5f);
    const TraceStage stage =
        tokens > static_cast<int64_t>(step.size()) ? TraceStage::prefill : TraceStage::decode;
    SWITCHYARD_CHECK(
        writer.append({tokens, stage, sequences, demand, dropped, weights, picks}).ok());
  }

  TempFolder folder_;
  TraceHeader header_;
  std::unique_ptr<TraceReader> reader_;
};

}  // namespace switchyard::moe
