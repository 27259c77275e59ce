// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/picks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace switchyard::model::cuda {
namespace {

namespace k = switchyard::cuda;

static_assert(k::Sample::kNonFinite == kPickNonFinite && k::Sample::kUndecided == kPickUndecided);
static_assert(sizeof(k::SeenToken) == sizeof(SeenToken));

k::SampleRow row_of(const SampleSpec& spec, int64_t first_seen, int64_t first_masked) {
  k::SampleRow row;
  row.seed = spec.seed;
  row.position = spec.position;
  row.log_min_p = std::log(static_cast<double>(spec.min_p));
  row.temperature = spec.temperature;
  row.top_p = spec.top_p;
  row.top_k = spec.top_k;
  row.repetition = spec.repetition;
  row.presence = spec.presence;
  row.frequency = spec.frequency;
  row.first_seen = static_cast<int32_t>(first_seen);
  row.num_seen = static_cast<int32_t>(spec.seen.size());
  row.first_masked = static_cast<int32_t>(first_masked);
  row.num_masked = static_cast<int32_t>(spec.masked.size());
  return row;
}

// One list behind the other in pinned memory.
template <class T>
T* append(std::byte*& at, std::span<const T> from) {
  auto* to = reinterpret_cast<T*>(at);
  if (!from.empty()) std::memcpy(to, from.data(), from.size_bytes());
  at += from.size_bytes();
  return to;
}

}  // namespace

Result<Picks> Picks::create(int max_rows, CudaStream& device) {
  Picks picks;
  const int64_t bytes = max_rows * static_cast<int64_t>(sizeof(k::SampleRow)) +
                        kMostListed * static_cast<int64_t>(sizeof(SeenToken));
  const int64_t workspace = k::sample_workspace(max_rows);
  SWITCHYARD_ASSIGN(picks.host_, PinnedMemory::allocate(bytes, "how tokens are chosen"));
  SWITCHYARD_ASSIGN(picks.device_, CudaMemory::allocate(bytes, "how tokens are chosen"));
  SWITCHYARD_ASSIGN(picks.workspace_, CudaMemory::allocate(workspace, "the choice of tokens"));
  device.fill(picks.workspace_.data(), 0, workspace);
  return picks;
}

bool Picks::queue(std::span<const SampleSpec> specs, float* logits, int64_t vocab, int32_t* pick,
                  CudaStream& device) {
  int64_t seen = 0, masked = 0;
  bool draws = false;
  auto* row = host_.as<k::SampleRow>();
  for (const SampleSpec& spec : specs) {
    *row++ = row_of(spec, seen, masked);
    seen += std::ssize(spec.seen);
    masked += std::ssize(spec.masked);
    draws |= spec.temperature != 0;
  }
  if (seen + masked > kMostListed) return false;
  auto* at = reinterpret_cast<std::byte*>(row);
  for (const SampleSpec& spec : specs) append(at, spec.seen);
  for (const SampleSpec& spec : specs) append(at, spec.masked);
  const bool adjusts = seen + masked > 0;
  if (draws || adjusts) device.copy_in(device_.data(), host_.data(), at - host_.data());
  const auto* rows = device_.as<k::SampleRow>();
  const auto* first_seen = reinterpret_cast<const k::SeenToken*>(rows + specs.size());
  k::sample({.logits = logits,
             .vocab = vocab,
             .rows = static_cast<int>(specs.size()),
             .row = rows,
             .seen = first_seen,
             .masked = reinterpret_cast<const int32_t*>(first_seen + seen),
             .adjusts = adjusts,
             .draws = draws,
             .pick = pick,
             .workspace = workspace_.data()},
            device.handle());
  return true;
}

}  // namespace switchyard::model::cuda
