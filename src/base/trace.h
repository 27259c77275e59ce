// SPDX-License-Identifier: Apache-2.0
// Where the time goes: named zones with sums by layer, and on request every event as a Chrome trace.
//
// The vocabulary of a profile is the enum below. A zone that is off costs one relaxed load; on, two clock reads.
// In the Chrome trace, steps enclose layers and layers enclose zones.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace switchyard {

/// Sorted by name; the phases of a step.
enum class Zone : uint8_t {
  activation,
  attention,
  combine,
  dense_ffn,
  device_step,  ///< a whole step on an accelerator: its parts are not timed one by one
  embedding,
  gather,
  gemm_down,
  gemm_up,
  lm_head,
  norm,
  router,
  sampling,
  shared_expert,
  sort,
  count_  // not a zone
};
inline constexpr int kNumZones = static_cast<int>(Zone::count_);
std::string_view zone_name(Zone zone);

/// Seconds per zone since the last reset, as seen by the thread that drives the step.
struct ZoneTimes {
  std::array<double, kNumZones> seconds{};
  double operator[](Zone zone) const { return seconds[static_cast<int>(zone)]; }
};

/// Collects zones of one engine. Not a singleton: the step carries it.
class Tracer {
 public:
  /// Before the first zone: layers 0 to num_layers - 1 get sums of their own, any other shares those of no layer.
  void set_layers(int num_layers);
  /// Sums only (cheap; may be switched while steps run), or also every event for the Chrome trace (at most
  /// `max_events`, then it stops recording; before the first zone).
  void enable_sums(bool on) noexcept { sums_on_.store(on, std::memory_order_relaxed); }
  void enable_events(size_t max_events);

  bool on() const noexcept { return sums_on_.load(std::memory_order_relaxed); }
  bool keeps_events() const noexcept { return events_on_.load(std::memory_order_relaxed); }
  /// layer is -1 outside layers. This and the next two are called by the driving thread alone.
  void add(Zone zone, int layer, int64_t start_ns, int64_t end_ns) noexcept;
  /// Events alone: what encloses zones.
  void add_layer(int layer, int64_t start_ns, int64_t end_ns) noexcept;
  void add_step(int64_t tokens, int64_t sequences, int64_t start_ns, int64_t end_ns) noexcept;

  /// Over all layers and what is outside of them.
  ZoneTimes times() const noexcept;
  /// [layers] of set_layers().
  std::vector<ZoneTimes> layer_times() const;
  void reset() noexcept;
  /// Chrome trace JSON ("traceEvents") that Perfetto opens; empty events if none were enabled.
  std::string chrome_trace() const;

  Tracer();
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

 private:
  struct Impl;
  std::atomic<bool> sums_on_{false}, events_on_{false};
  std::unique_ptr<Impl> impl_;
};

/// Times a scope into a tracer, which may be null.
class ZoneScope {
 public:
  ZoneScope(Tracer* tracer, Zone zone, int layer = -1) noexcept
      : tracer_(tracer != nullptr && tracer->on() ? tracer : nullptr), zone_(zone), layer_(layer) {
    if (tracer_ != nullptr) start_ns_ = now_ns();
  }
  ~ZoneScope() {
    if (tracer_ != nullptr) tracer_->add(zone_, layer_, start_ns_, now_ns());
  }
  ZoneScope(const ZoneScope&) = delete;
  ZoneScope& operator=(const ZoneScope&) = delete;

 private:
  Tracer* tracer_;
  Zone zone_;
  int layer_;
  int64_t start_ns_ = 0;
};

/// Marks a layer in the Chrome trace of a tracer, which may be null.
class LayerScope {
 public:
  LayerScope(Tracer* tracer, int layer) noexcept
      : tracer_(tracer != nullptr && tracer->keeps_events() ? tracer : nullptr), layer_(layer) {
    if (tracer_ != nullptr) start_ns_ = now_ns();
  }
  ~LayerScope() {
    if (tracer_ != nullptr) tracer_->add_layer(layer_, start_ns_, now_ns());
  }
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  Tracer* tracer_;
  int layer_;
  int64_t start_ns_ = 0;
};

}  // namespace switchyard
