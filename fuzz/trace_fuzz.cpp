// SPDX-License-Identifier: Apache-2.0
// What `switchyard stats` reads: routing traces, dumps of expert load ('{' first), metrics of a server ('#' first). Any bytes
// are parsed or refused; what is accepted lies inside the file, keeps its promises and can be measured.
// The checksums of a trace are mended first, or no change would ever come past them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/exposition.h"
#include "moe/trace/batches.h"
#include "moe/trace/coactivation.h"
#include "moe/trace/expert_load.h"
#include "moe/trace/measures.h"
#include "moe/trace/reader.h"
#include "moe/trace/topics.h"

namespace {

using namespace switchyard;

template <class T>
T load(std::span<const std::byte> file, uint64_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

void mend(std::span<std::byte> file, uint64_t checksum_at, uint64_t begin, uint64_t length) {
  const uint32_t crc = crc32c(file.subspan(begin, length));
  std::memcpy(file.data() + checksum_at, &crc, sizeof crc);
}

void mend_checksums(std::span<std::byte> file) {
  constexpr uint64_t kHeader = 24, kBlockHead = 16;
  if (file.size() < kHeader || load<uint64_t>(file, 16) > file.size() - kHeader) return;
  uint64_t at = kHeader + load<uint64_t>(file, 16);
  mend(file, 12, kHeader, at - kHeader);
  while (file.size() - at >= kBlockHead) {
    const auto length = load<uint64_t>(file, at + 8);
    if (length > file.size() - at - kBlockHead) return;
    mend(file, at + 4, at + kBlockHead, length);
    at = std::min<uint64_t>(at + kBlockHead + moe::trace_padded(length), file.size());
  }
}

uint64_t walk(const moe::TraceView& trace) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    const moe::TraceStep step = trace.step(i);
    int64_t tokens = 0;
    for (const moe::TraceSequence& sequence : step.sequences()) {
      tokens += sequence.tokens;
      SWITCHYARD_CHECK(sequence.topic < static_cast<int64_t>(trace.topics().size()));
    }
    SWITCHYARD_CHECK(tokens == step.num_tokens(), "{} of {}", tokens, step.num_tokens());
    for (int layer = 0; layer < trace.header().num_layers; ++layer) {
      for (const uint32_t count : step.demand(layer)) sum += count;
      sum += step.dropped(layer);
      for (const float weight : step.weights(layer)) sum += weight > 0 ? 1 : 0;
      for (const uint16_t expert : step.picks(layer)) {
        SWITCHYARD_CHECK(expert < trace.header().num_experts || expert == moe::kDroppedPick);
        sum += expert;
      }
    }
  }
  return sum;
}

/// Only traces of few experts: the measures keep tables of all of them.
void measure_all(const moe::TraceView& trace) {
  const moe::TraceHeader& header = trace.header();
  if (trace.num_steps() == 0 || int64_t{header.num_layers} * header.num_experts > 4096) return;
  const moe::TraceMeasures measures = moe::measure(trace);
  SWITCHYARD_CHECK(measures.all.steps == trace.num_steps() &&
                   measures.all.tokens == trace.num_tokens());
  for (const moe::LayerMeasures& layer : measures.layers)
    SWITCHYARD_CHECK(layer.imbalance.max >= 0 && layer.entropy <= 1 + 1e-9);
  const moe::Drift drift = moe::measure_drift(trace, 3);
  for (const double distance : drift.neighbours)
    SWITCHYARD_CHECK(distance >= 0 && distance <= 1 + 1e-9, "{}", distance);
  if (trace.topics().size() < 64) moe::measure_topics(trace);
  if (!header.has_picks) return;
  constexpr int64_t kSizes[] = {1, 3};
  moe::regroup(trace, moe::BatchOrder::across_requests, kSizes);
  moe::strongest_pairs(moe::measure_coactivation(trace, header.num_layers - 1), 3);
}

void read_expert_load(std::string_view text) {
  const auto load = moe::parse_expert_load(text, "fuzz");
  if (!load.ok()) return;
  const auto layers = static_cast<size_t>(load->header.num_layers);
  const auto experts = static_cast<size_t>(load->header.num_experts);
  SWITCHYARD_CHECK(load->counts.size() == layers && load->dropped.size() == layers);
  for (const moe::ExpertLoadWindow& window : load->windows)
    for (const auto& row : window.counts) SWITCHYARD_CHECK(row.size() == experts);
  for (const auto& row : load->counts) SWITCHYARD_CHECK(moe::entropy(row) <= 1 + 1e-9);
}

void read_exposition(std::string_view text) {
  (void)join_expositions(text, text);
  const auto metrics = Exposition::parse(text);
  if (!metrics.ok()) return;
  for (const MetricFamily& family : metrics->families()) {
    const Buckets buckets = buckets_of(*metrics, family.name);
    SWITCHYARD_CHECK(buckets.bounds.size() == buckets.counts.size());
    for (const double q : {0.0, 0.5, 0.99, 1.0}) (void)buckets.since(buckets).quantile(q);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) return read_expert_load(text), 0;
  if (text.starts_with('#')) return read_exposition(text), 0;
  std::vector<uint64_t> room(size / 8 + 1);  // aligned, and no longer than the input
  const std::span<std::byte> file = std::as_writable_bytes(std::span(room)).first(size);
  if (size > 0) std::memcpy(file.data(), data, size);
  mend_checksums(file);
  const auto trace = moe::TraceView::parse(file, "fuzz");
  if (!trace.ok()) {
    SWITCHYARD_CHECK(trace.error().message.starts_with("fuzz: "), "{}", trace.error().message);
    return 0;
  }
  // The reads must happen, so that the address sanitizer sees them.
  [[maybe_unused]] static volatile uint64_t sink;
  sink = walk(*trace);
  measure_all(*trace);
  return 0;
}
