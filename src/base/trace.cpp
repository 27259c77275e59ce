// SPDX-License-Identifier: Apache-2.0
// Zone sums and recorded events. One thread writes; sums and the number of events are atomics with a single writer,
// so that another thread may read while a step runs.
// Source of the output: the Trace Event Format (complete events, "ph": "X"; times in microseconds).
#include "base/trace.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace switchyard {
namespace {

constexpr std::string_view kZoneNames[] = {"activation",  "attention",     "combine", "dense_ffn",
                                           "device_step", "embedding",     "gather",  "gemm_down",
                                           "gemm_up",     "lm_head",       "norm",    "router",
                                           "sampling",    "shared_expert", "sort"};
static_assert(std::size(kZoneNames) == kNumZones);

enum class EventKind : uint8_t { zone, layer, step };

struct Event {
  int64_t start_ns = 0, end_ns = 0;
  int64_t tokens = 0, sequences = 0;  // of a step
  int layer = -1;
  Zone zone = Zone::count_;
  EventKind kind = EventKind::zone;
};

std::string name_of(const Event& event) {
  if (event.kind == EventKind::step) return "step";
  if (event.kind == EventKind::layer) return fmt::format("layer {}", event.layer);
  return std::string(zone_name(event.zone));
}

void write_event(JsonWriter& json, const Event& event, int64_t origin_ns) {
  constexpr double kMicrosecond = 1e-3;
  constexpr std::string_view kCategories[] = {"zone", "layer", "step"};
  json.begin_object().field("name", name_of(event));
  json.field("cat", kCategories[static_cast<size_t>(event.kind)]).field("ph", "X");
  json.field("pid", 1).field("tid", 1);
  json.field("ts", static_cast<double>(event.start_ns - origin_ns) * kMicrosecond);
  json.field("dur", static_cast<double>(event.end_ns - event.start_ns) * kMicrosecond);
  if (event.kind == EventKind::step) {
    json.key("args").begin_object().field("tokens", event.tokens);
    json.field("sequences", event.sequences).end_object();
  } else if (event.layer >= 0) {
    json.key("args").begin_object().field("layer", event.layer).end_object();
  }
  json.end_object();
}

/// What the process and its one thread are called.
void write_names(JsonWriter& json) {
  for (const auto& [what, name] :
       {std::pair("process_name", "switchyard"), std::pair("thread_name", "engine loop")}) {
    json.begin_object().field("name", what).field("ph", "M").field("pid", 1).field("tid", 1);
    json.field("ts", 0).key("args").begin_object().field("name", name).end_object().end_object();
  }
}

}  // namespace

std::string_view zone_name(Zone zone) { return kZoneNames[static_cast<int>(zone)]; }

struct Tracer::Impl {
  using Sums = std::array<std::atomic<int64_t>, kNumZones>;

  /// One writer: a load and a store are enough, and cheaper than a locked addition.
  void add(Zone zone, int layer, int64_t ns) noexcept {
    const bool known = layer >= 0 && layer < static_cast<int>(sum_ns.size()) - 1;
    auto& sum = sum_ns[known ? static_cast<size_t>(layer) + 1 : 0][static_cast<size_t>(zone)];
    sum.store(sum.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  }

  void keep(const Event& event) noexcept {
    const size_t n = num_events.load(std::memory_order_relaxed);
    if (n == max_events) {
      dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    events[n] = event;
    num_events.store(n + 1, std::memory_order_release);
  }

  /// In order of begin, what encloses before what is enclosed.
  std::vector<Event> sorted_events() const {
    const size_t n = num_events.load(std::memory_order_acquire);
    std::vector<Event> sorted(events.get(), events.get() + n);
    std::stable_sort(sorted.begin(), sorted.end(), [](const Event& a, const Event& b) {
      if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
      return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.kind > b.kind;
    });
    return sorted;
  }

  std::vector<Sums> sum_ns = std::vector<Sums>(1);  // [1 + layers]; the first is of no layer
  std::unique_ptr<Event[]> events;
  size_t max_events = 0;
  std::atomic<size_t> num_events{0};  // published after the event is written
  std::atomic<int64_t> dropped{0};
};

Tracer::Tracer() : impl_(std::make_unique<Impl>()) { calibrate_clock(); }
Tracer::~Tracer() = default;

void Tracer::set_layers(int num_layers) {
  impl_->sum_ns = std::vector<Impl::Sums>(static_cast<size_t>(num_layers) + 1);
}

void Tracer::enable_events(size_t max_events) {
  impl_->num_events.store(0, std::memory_order_relaxed);
  impl_->dropped.store(0, std::memory_order_relaxed);
  impl_->max_events = max_events;
  impl_->events = max_events > 0 ? std::make_unique<Event[]>(max_events) : nullptr;
  events_on_.store(max_events > 0, std::memory_order_relaxed);
  if (max_events > 0) enable_sums(true);
}

void Tracer::add(Zone zone, int layer, int64_t start_ns, int64_t end_ns) noexcept {
  impl_->add(zone, layer, end_ns - start_ns);
  if (keeps_events()) impl_->keep({start_ns, end_ns, 0, 0, layer, zone, EventKind::zone});
}

void Tracer::add_layer(int layer, int64_t start_ns, int64_t end_ns) noexcept {
  if (!keeps_events()) return;
  impl_->keep({start_ns, end_ns, 0, 0, layer, Zone::count_, EventKind::layer});
}

void Tracer::add_step(int64_t tokens, int64_t sequences, int64_t start_ns,
                      int64_t end_ns) noexcept {
  if (!keeps_events()) return;
  impl_->keep({start_ns, end_ns, tokens, sequences, -1, Zone::count_, EventKind::step});
}

ZoneTimes Tracer::times() const noexcept {
  ZoneTimes times;
  for (const Impl::Sums& sums : impl_->sum_ns)
    for (size_t i = 0; i < kNumZones; ++i)
      times.seconds[i] += static_cast<double>(sums[i].load(std::memory_order_relaxed)) * 1e-9;
  return times;
}

std::vector<ZoneTimes> Tracer::layer_times() const {
  std::vector<ZoneTimes> layers(impl_->sum_ns.size() - 1);
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t i = 0; i < kNumZones; ++i)
      layers[l].seconds[i] =
          static_cast<double>(impl_->sum_ns[l + 1][i].load(std::memory_order_relaxed)) * 1e-9;
  return layers;
}

void Tracer::reset() noexcept {
  for (Impl::Sums& sums : impl_->sum_ns)
    for (auto& sum : sums) sum.store(0, std::memory_order_relaxed);
  impl_->num_events.store(0, std::memory_order_relaxed);
  impl_->dropped.store(0, std::memory_order_relaxed);
}

std::string Tracer::chrome_trace() const {
  const std::vector<Event> events = impl_->sorted_events();
  const int64_t origin_ns = events.empty() ? 0 : events.front().start_ns;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
  write_names(json);
  for (const Event& event : events) write_event(json, event, origin_ns);
  json.end_array().key("otherData").begin_object();
  json.field("dropped_events", impl_->dropped.load(std::memory_order_relaxed));
  json.end_object().end_object();
  return text;
}

}  // namespace switchyard
