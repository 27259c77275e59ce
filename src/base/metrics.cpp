// SPDX-License-Identifier: Apache-2.0
// The registry and its text. Source: Prometheus exposition format 0.0.4; names by its naming practices, so that
// `promtool check metrics` has nothing to say.
#include "base/metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <variant>

#include "base/check.h"

namespace switchyard {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_name(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void append_escaped(std::string& out, std::string_view text, bool quote) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quote) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

void append_number(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
  } else if (std::isinf(number)) {
    out += number > 0 ? "+Inf" : "-Inf";
  } else {
    fmt::format_to(std::back_inserter(out), "{}", number);
  }
}

/// `name{a="b",le="0.5"} ` up to the value; `bound` is the bucket's, or null.
void append_series(std::string& out, std::string_view name, std::string_view suffix,
                   const Labels& labels, const double* bound = nullptr) {
  out += name;
  out += suffix;
  if (!labels.empty() || bound != nullptr) {
    char before = '{';
    for (const auto& [key, value] : labels) {
      out += before;
      out += key;
      out += "=\"";
      append_escaped(out, value, true);
      out += '"';
      before = ',';
    }
    if (bound != nullptr) {
      out += before;
      out += "le=\"";
      append_number(out, *bound);
      out += '"';
    }
    out += '}';
  }
  out += ' ';
}

void append_value(std::string& out, std::string_view name, const Labels& labels, const Counter& c) {
  append_series(out, name, "", labels);
  fmt::format_to(std::back_inserter(out), "{}\n", c.value());
}

/// Of a gauge or a counter of fractions.
template <class Metric>
void append_value(std::string& out, std::string_view name, const Labels& labels, const Metric& m) {
  append_series(out, name, "", labels);
  append_number(out, m.value());
  out += '\n';
}

void append_value(std::string& out, std::string_view name, const Labels& labels,
                  const Histogram& h) {
  const double infinity = HUGE_VAL;
  uint64_t below = 0;
  for (size_t i = 0; i <= h.bounds().size(); ++i) {
    below += h.bucket(i);
    append_series(out, name, "_bucket", labels, i < h.bounds().size() ? &h.bounds()[i] : &infinity);
    fmt::format_to(std::back_inserter(out), "{}\n", below);
  }
  append_series(out, name, "_sum", labels);
  append_number(out, h.sum());
  out += '\n';
  append_series(out, name, "_count", labels);
  fmt::format_to(std::back_inserter(out), "{}\n", below);  // from the same reads as the buckets
}

// In the order of the variant below.
constexpr std::string_view kKindNames[] = {"counter", "gauge", "histogram", "counter"};
using Value = std::variant<std::unique_ptr<Counter>, std::unique_ptr<Gauge>,
                           std::unique_ptr<Histogram>, std::unique_ptr<FloatCounter>>;

struct Series {
  Labels labels;
  Value value;
};

struct Family {
  std::string name, help;
  size_t kind;
  std::vector<Series> series;
};

void check_name(std::string_view name, size_t kind, const Labels& labels) {
  SWITCHYARD_CHECK(is_name(name), "metric name \"{}\"", name);
  SWITCHYARD_CHECK((kKindNames[kind] == "counter") == name.ends_with("_total"),
                   "{}: counters, and they alone, end in _total", name);
  for (const std::string_view suffix : {"_bucket", "_count", "_sum"}) {
    SWITCHYARD_CHECK(!name.ends_with(suffix), "{}: the suffix belongs to histograms", name);
  }
  for (const auto& [key, value] : labels) {
    SWITCHYARD_CHECK(is_name(key) && !key.starts_with("__") && key != "le", "{}: label \"{}\"",
                     name, key);
  }
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), buckets_(new std::atomic<uint64_t>[bounds_.size() + 1] {}) {
  for (size_t i = 0; i < bounds_.size(); ++i) {
    SWITCHYARD_CHECK(std::isfinite(bounds_[i]) && (i == 0 || bounds_[i - 1] < bounds_[i]),
                     "histogram bound {} is {}", i, bounds_[i]);
  }
}

void Histogram::observe(double v) noexcept {
  if (std::isnan(v)) return;  // one NaN would spoil the sum for ever
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), v) - bounds_.begin();
  buckets_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(v, std::memory_order_relaxed);
}

uint64_t Histogram::bucket(size_t i) const noexcept {
  return buckets_[i].load(std::memory_order_relaxed);
}

double Histogram::sum() const noexcept { return sum_.load(std::memory_order_relaxed); }

std::vector<double> latency_bounds() {
  return {5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
          0.1,  0.2,  0.5,  1,    2,     5,     10,    20,   50,   100};
}

struct MetricRegistry::Impl {
  mutable std::mutex mutex;  // registration and text; never taken by an update
  std::vector<Family> families;

  Family& family(std::string_view name, std::string_view help, size_t kind, const Labels& labels) {
    for (Family& known : families) {
      if (known.name != name) continue;
      SWITCHYARD_CHECK(known.kind == kind && known.help == help,
                       "{} is registered as {} \"{}\", asked as {} \"{}\"", name,
                       kKindNames[known.kind], known.help, kKindNames[kind], help);
      return known;
    }
    check_name(name, kind, labels);
    families.push_back({std::string(name), std::string(help), kind, {}});
    return families.back();
  }

  template <class Metric, size_t kKind, class... Args>
  Metric& find_or_add(std::string_view name, std::string_view help, const Labels& labels,
                      Args&&... args) {
    const std::lock_guard lock(mutex);
    Family& of = family(name, help, kKind, labels);
    for (Series& known : of.series) {
      if (known.labels == labels) return **std::get_if<kKind>(&known.value);
    }
    check_name(name, kKind, labels);
    auto metric = std::make_unique<Metric>(std::forward<Args>(args)...);
    Metric& reference = *metric;
    of.series.push_back({labels, Value(std::in_place_index<kKind>, std::move(metric))});
    return reference;
  }
};

MetricRegistry::MetricRegistry() : impl_(std::make_unique<Impl>()) {}
MetricRegistry::~MetricRegistry() = default;

Counter& MetricRegistry::counter(std::string_view name, std::string_view help,
                                 const Labels& labels) {
  return impl_->find_or_add<Counter, 0>(name, help, labels);
}

FloatCounter& MetricRegistry::float_counter(std::string_view name, std::string_view help,
                                            const Labels& labels) {
  return impl_->find_or_add<FloatCounter, 3>(name, help, labels);
}

Gauge& MetricRegistry::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  return impl_->find_or_add<Gauge, 1>(name, help, labels);
}

Histogram& MetricRegistry::histogram(std::string_view name, std::string_view help,
                                     const std::vector<double>& bounds, const Labels& labels) {
  Histogram& found = impl_->find_or_add<Histogram, 2>(name, help, labels, bounds);
  SWITCHYARD_CHECK(found.bounds() == bounds, "{}: registered with other bounds", name);
  return found;
}

std::string MetricRegistry::prometheus_text() const {
  const std::lock_guard lock(impl_->mutex);
  std::string out;
  for (const Family& family : impl_->families) {
    fmt::format_to(std::back_inserter(out), "# HELP {} ", family.name);
    append_escaped(out, family.help, false);
    fmt::format_to(std::back_inserter(out), "\n# TYPE {} {}\n", family.name,
                   kKindNames[family.kind]);
    for (const Series& series : family.series) {
      std::visit(
          [&](const auto& metric) { append_value(out, family.name, series.labels, *metric); },
          series.value);
    }
  }
  return out;
}

}  // namespace switchyard
