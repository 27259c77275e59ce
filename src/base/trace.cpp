// SPDX-License-Identifier: Apache-2.0
// Zone sums and recorded events. One thread writes; sums and the number of events are atomics with a single writer,
// so that another thread may read while a step runs.
// Source of the output: the Trace Event Format (complete events, "ph": "X"; times in microseconds).
#include "base/trace.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace switchyard {
namespace {

constexpr std::string_view kZoneNames[] = {"activation",  "attention",     "combine", "dense_ffn",
                                           "device_step", "embedding",     "gather",  "gemm_down",
                                           "gemm_up",     "lm_head",       "norm",    "router",
                                           "sampling",    "shared_expert", "sort"};
static_assert(std::size(kZoneNames) == kNumZones);

struct Event {
  int64_t start_ns, end_ns;
  int layer;
  Zone zone;
};

void write_event(JsonWriter& json, const Event& event, int64_t origin_ns) {
  constexpr double kMicrosecond = 1e-3;
  json.begin_object();
  json.field("name", zone_name(event.zone)).field("cat", "step").field("ph", "X");
  json.field("pid", 1).field("tid", 1);
  json.field("ts", static_cast<double>(event.start_ns - origin_ns) * kMicrosecond);
  json.field("dur", static_cast<double>(event.end_ns - event.start_ns) * kMicrosecond);
  if (event.layer >= 0) json.key("args").begin_object().field("layer", event.layer).end_object();
  json.end_object();
}

}  // namespace

std::string_view zone_name(Zone zone) { return kZoneNames[static_cast<int>(zone)]; }

struct Tracer::Impl {
  std::array<std::atomic<int64_t>, kNumZones> sum_ns{};
  std::unique_ptr<Event[]> events;
  size_t max_events = 0;
  std::atomic<size_t> num_events{0};  // published after the event is written
  std::atomic<int64_t> dropped{0};
};

Tracer::Tracer() : impl_(std::make_unique<Impl>()) {}
Tracer::~Tracer() = default;

void Tracer::enable_events(size_t max_events) {
  impl_->num_events.store(0, std::memory_order_relaxed);
  impl_->dropped.store(0, std::memory_order_relaxed);
  impl_->max_events = max_events;
  impl_->events = max_events > 0 ? std::make_unique<Event[]>(max_events) : nullptr;
  if (max_events > 0) enable_sums(true);
}

void Tracer::add(Zone zone, int layer, int64_t start_ns, int64_t end_ns) noexcept {
  // One writer: a load and a store are enough, and cheaper than a locked addition.
  auto& sum = impl_->sum_ns[static_cast<size_t>(zone)];
  sum.store(sum.load(std::memory_order_relaxed) + end_ns - start_ns, std::memory_order_relaxed);
  if (impl_->max_events == 0) return;
  const size_t n = impl_->num_events.load(std::memory_order_relaxed);
  if (n == impl_->max_events) {
    impl_->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  impl_->events[n] = {start_ns, end_ns, layer, zone};
  impl_->num_events.store(n + 1, std::memory_order_release);
}

ZoneTimes Tracer::times() const noexcept {
  ZoneTimes times;
  for (size_t i = 0; i < kNumZones; ++i) {
    times.seconds[i] = static_cast<double>(impl_->sum_ns[i].load(std::memory_order_relaxed)) * 1e-9;
  }
  return times;
}

void Tracer::reset() noexcept {
  for (auto& sum : impl_->sum_ns) sum.store(0, std::memory_order_relaxed);
  impl_->num_events.store(0, std::memory_order_relaxed);
  impl_->dropped.store(0, std::memory_order_relaxed);
}

std::string Tracer::chrome_trace() const {
  const size_t n = impl_->num_events.load(std::memory_order_acquire);
  int64_t origin_ns = n > 0 ? impl_->events[0].start_ns : 0;
  for (size_t i = 0; i < n; ++i) origin_ns = std::min(origin_ns, impl_->events[i].start_ns);
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
  for (size_t i = 0; i < n; ++i) write_event(json, impl_->events[i], origin_ns);
  json.end_array().key("otherData").begin_object();
  json.field("dropped_events", impl_->dropped.load(std::memory_order_relaxed));
  json.end_object().end_object();
  return text;
}

}  // namespace switchyard
