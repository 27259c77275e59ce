// SPDX-License-Identifier: Apache-2.0
// Counters, gauges and histograms, written as Prometheus text (exposition format 0.0.4) in a stable order.
//
// Updates are lock-free atomics; series are registered before the work starts and live as long as their registry.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// A counter of what is no whole number, such as seconds.
class FloatCounter {
 public:
  void add(double amount) noexcept { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double v) noexcept { value_.store(v, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// Cumulative buckets with fixed upper bounds, sum and count.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double v) noexcept;
  const std::vector<double>& bounds() const noexcept { return bounds_; }
  uint64_t bucket(
      size_t i) const noexcept;  ///< observations in (bounds[i-1], bounds[i]]; last: above all
  double sum() const noexcept;

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> buckets_;
  std::atomic<double> sum_{0};
};

/// 1-2-5 steps from 50 us to 100 s.
std::vector<double> latency_bounds();

class MetricRegistry {
 public:
  MetricRegistry();
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  /// Registers (or finds) a series. One name has one kind and one help text (checked).
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  FloatCounter& float_counter(std::string_view name, std::string_view help,
                              const Labels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help,
                       const std::vector<double>& bounds, const Labels& labels = {});

  /// All series in the order of registration of their names, then of their labels.
  std::string prometheus_text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
