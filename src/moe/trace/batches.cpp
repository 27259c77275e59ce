// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/batches.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "moe/trace/measures.h"

namespace switchyard::moe {
namespace {

/// Where a token's picks lie.
struct Place {
  uint64_t request = 0, position = 0;
  int64_t step = 0, row = 0;
};

std::vector<Place> places_of(const TraceView& trace) {
  std::vector<Place> places;
  places.reserve(static_cast<size_t>(trace.num_tokens()));
  for (int64_t i = 0; i < trace.num_steps(); ++i) {
    int64_t row = 0;
    for (const TraceSequence& sequence : trace.step(i).sequences())
      for (uint32_t t = 0; t < sequence.tokens; ++t)
        places.push_back({sequence.request, uint64_t{sequence.first_position} + t, i, row++});
  }
  return places;
}

std::vector<Place> in_order(std::vector<Place> places, BatchOrder order) {
  const auto key = [order](const Place& p) {
    return order == BatchOrder::across_requests ? std::tuple(p.position, p.request, p.step)
                                                : std::tuple(p.request, p.position, p.step);
  };
  std::sort(places.begin(), places.end(),
            [&](const Place& a, const Place& b) { return key(a) < key(b); });
  const auto same = [](const Place& a, const Place& b) {
    return a.request == b.request && a.position == b.position;
  };
  places.erase(std::unique(places.begin(), places.end(), same), places.end());
  return places;
}

/// [T, K] picks of a layer in the order of the places.
std::vector<uint16_t> picks_in_order(const TraceView& trace, const std::vector<Place>& places,
                                     int layer) {
  const auto top_k = static_cast<size_t>(trace.header().top_k);
  std::vector<uint16_t> picks;
  picks.reserve(places.size() * top_k);
  for (const Place& place : places) {
    const auto row =
        trace.step(place.step).picks(layer).subspan(static_cast<size_t>(place.row) * top_k, top_k);
    picks.insert(picks.end(), row.begin(), row.end());
  }
  return picks;
}

void add_layer(BatchMeasures& measures, std::span<const uint16_t> picks, int num_experts,
               int top_k) {
  const size_t batch_picks = static_cast<size_t>(measures.batch) * static_cast<size_t>(top_k);
  double imbalance_sum = 0, touched_sum = 0;
  std::vector<uint32_t> load(static_cast<size_t>(num_experts));
  for (int64_t b = 0; b < measures.num_batches; ++b) {
    std::fill(load.begin(), load.end(), 0);
    for (const uint16_t expert : picks.subspan(static_cast<size_t>(b) * batch_picks, batch_picks))
      if (expert != kDroppedPick) ++load[expert];
    imbalance_sum += imbalance(std::span<const uint32_t>(load));
    touched_sum += touched(load);
  }
  measures.imbalance.push_back(imbalance_sum / static_cast<double>(measures.num_batches));
  measures.touched.push_back(touched_sum / static_cast<double>(measures.num_batches));
}

}  // namespace

std::vector<BatchMeasures> regroup(const TraceView& trace, BatchOrder order,
                                   std::span<const int64_t> sizes) {
  const TraceHeader& header = trace.header();
  SWITCHYARD_CHECK(header.has_picks, "batches need picks");
  const std::vector<Place> places = in_order(places_of(trace), order);
  std::vector<BatchMeasures> rows;
  for (const int64_t size : sizes) {
    SWITCHYARD_CHECK(size > 0, "batches of {}", size);
    const int64_t count = std::ssize(places) / size;
    if (count > 0) rows.push_back({size, count, {}, {}});
  }
  for (int layer = 0; layer < header.num_layers; ++layer) {
    const std::vector<uint16_t> picks = picks_in_order(trace, places, layer);
    for (BatchMeasures& row : rows) add_layer(row, picks, header.num_experts, header.top_k);
  }
  return rows;
}

double mean_over_layers(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace switchyard::moe
