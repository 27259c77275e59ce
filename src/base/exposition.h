// SPDX-License-Identifier: Apache-2.0
// Prometheus text (exposition format 0.0.4) read back: to join the texts of two registries, to answer in others' names,
// and to show a server's metrics in a terminal.
//
// The reader takes what this project writes: families with their HELP and TYPE first, no timestamps. It trusts nothing:
// what it does not understand is an error with the line.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"

namespace switchyard {

struct Sample {
  std::string suffix;  ///< of histograms: "_bucket", "_sum", "_count"
  Labels labels;       ///< with "le" of buckets
  double value = 0;

  /// Empty when there is none.
  std::string_view label(std::string_view name) const noexcept;
};

struct MetricFamily {
  std::string name, type, help;
  std::vector<Sample> samples;
};

/// All families in the order of the text.
class Exposition {
 public:
  static Result<Exposition> parse(std::string_view text);

  const std::vector<MetricFamily>& families() const noexcept { return families_; }
  /// Null when there is none.
  const MetricFamily* find(std::string_view name) const noexcept;
  /// Sum of the samples of a counter or gauge that have all these labels; 0 when there is none.
  double sum(std::string_view name, const Labels& labels = {}) const;

 private:
  std::vector<MetricFamily> families_;
};

/// Two texts as one: samples of a family that both have stand together, and counters of the same labels are added.
std::string join_expositions(std::string_view first, std::string_view second);

/// Cumulative counts by upper bound, the last one infinite; of all samples with these labels together.
struct Buckets {
  std::vector<double> bounds, counts;
  double sum = 0;

  double count() const noexcept { return counts.empty() ? 0 : counts.back(); }
  /// What came since `earlier`; all of it when that has other bounds or more.
  Buckets since(const Buckets& earlier) const;
  /// As Prometheus' histogram_quantile: even inside a bucket; the last finite bound when it lies above. NaN when empty.
  double quantile(double q) const;
};
Buckets buckets_of(const Exposition& exposition, std::string_view name, const Labels& labels = {});

}  // namespace switchyard
