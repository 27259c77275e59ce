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
void append(std::byte*& at, std::span<const T> from) {
  if (!from.empty()) std::memcpy(at, from.data(), from.size_bytes());
  at += from.size_bytes();
}

}  // namespace

Result<Picks> Picks::create(int max_rows, CudaStream& device) {
  Picks picks;
  picks.rows_.reserve(static_cast<size_t>(max_rows));
  const int64_t bytes = kMostListed * static_cast<int64_t>(sizeof(SeenToken));
  const int64_t workspace = k::sample_workspace(max_rows);
  SWITCHYARD_ASSIGN(picks.host_, PinnedMemory::allocate(bytes, "seen tokens"));
  SWITCHYARD_ASSIGN(picks.device_, CudaMemory::allocate(bytes, "seen tokens"));
  SWITCHYARD_ASSIGN(picks.workspace_, CudaMemory::allocate(workspace, "the choice of tokens"));
  device.fill(picks.workspace_.data(), 0, workspace);
  return picks;
}

Picks::Asked Picks::pack(std::span<const SampleSpec> specs) {
  Asked asked;
  rows_.clear();
  num_seen_ = num_masked_ = 0;
  for (const SampleSpec& spec : specs) {
    rows_.push_back(row_of(spec, num_seen_, num_masked_));
    num_seen_ += std::ssize(spec.seen);
    num_masked_ += std::ssize(spec.masked);
    asked.draws |= spec.temperature != 0;
  }
  asked.picks = !specs.empty() && num_seen_ + num_masked_ <= kMostListed;
  asked.adjusts = num_seen_ + num_masked_ > 0;
  if (!asked.picks || !asked.adjusts) return asked;
  auto* at = host_.data();
  for (const SampleSpec& spec : specs) append(at, spec.seen);
  for (const SampleSpec& spec : specs) append(at, spec.masked);
  return asked;
}

void Picks::queue(const Asked& asked, int count, const k::SampleRow* on_device, float* logits,
                  int64_t vocab, int32_t* pick, CudaStream& device) {
  const auto* seen = device_.as<k::SeenToken>();
  if (asked.adjusts) {
    const int64_t bytes = num_seen_ * static_cast<int64_t>(sizeof(SeenToken)) + num_masked_ * 4;
    device.copy_in(device_.data(), host_.data(), bytes);
  }
  k::sample({.logits = logits,
             .vocab = vocab,
             .rows = count,
             .row = on_device,
             .seen = seen,
             .masked = reinterpret_cast<const int32_t*>(seen + num_seen_),
             .adjusts = asked.adjusts,
             .draws = asked.draws,
             .pick = pick,
             .workspace = workspace_.data()},
            device.handle());
}

}  // namespace switchyard::model::cuda
