// SPDX-License-Identifier: Apache-2.0
// The text is what Prometheus reads, and wrong names are caught where they are registered.
#include "base/metrics.h"

#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "base/text_checks.h"

namespace switchyard {
namespace {

TEST(Metrics, WritesFamiliesInOrderOfRegistration) {
  MetricRegistry registry;
  registry.counter("switchyard_tokens_total", "Tokens made.", {{"phase", "decode"}}).add(3);
  registry.gauge("switchyard_blocks", "Blocks in use.").set(1.5);
  registry.counter("switchyard_tokens_total", "Tokens made.", {{"phase", "prefill"}}).add();
  EXPECT_EQ(registry.prometheus_text(),
            "# HELP switchyard_tokens_total Tokens made.\n"
            "# TYPE switchyard_tokens_total counter\n"
            "switchyard_tokens_total{phase=\"decode\"} 3\n"
            "switchyard_tokens_total{phase=\"prefill\"} 1\n"
            "# HELP switchyard_blocks Blocks in use.\n"
            "# TYPE switchyard_blocks gauge\n"
            "switchyard_blocks 1.5\n");
}

TEST(Metrics, HistogramsAreCumulative) {
  MetricRegistry registry;
  Histogram& h = registry.histogram("switchyard_step_seconds", "Step.", {0.5, 1}, {{"k", "v"}});
  for (const double v : {0.25, 0.5, 0.75, 7.0}) h.observe(v);
  h.observe(std::nan(""));     // not a time
  EXPECT_EQ(h.bucket(0), 2u);  // the bound itself belongs to its bucket
  EXPECT_EQ(registry.prometheus_text(),
            "# HELP switchyard_step_seconds Step.\n"
            "# TYPE switchyard_step_seconds histogram\n"
            "switchyard_step_seconds_bucket{k=\"v\",le=\"0.5\"} 2\n"
            "switchyard_step_seconds_bucket{k=\"v\",le=\"1\"} 3\n"
            "switchyard_step_seconds_bucket{k=\"v\",le=\"+Inf\"} 4\n"
            "switchyard_step_seconds_sum{k=\"v\"} 8.5\n"
            "switchyard_step_seconds_count{k=\"v\"} 4\n");
}

TEST(Metrics, EscapesLabelsAndHelp) {
  MetricRegistry registry;
  registry.gauge("g", "a\\b\n\"c\"", {{"path", "x\"y\\z\n"}}).set(HUGE_VAL);
  EXPECT_EQ(registry.prometheus_text(),
            "# HELP g a\\\\b\\n\"c\"\n"
            "# TYPE g gauge\n"
            "g{path=\"x\\\"y\\\\z\\n\"} +Inf\n");
}

TEST(Metrics, OneSeriesIsOneObject) {
  MetricRegistry registry;
  Counter& a = registry.counter("a_total", "A.", {{"l", "1"}});
  for (int i = 0; i < 100; ++i) {
    registry.counter("a_total", "A.", {{"l", std::to_string(i)}});
    registry.counter("b" + std::to_string(i) + "_total", "B.");
  }
  a.add(5);  // the address stayed valid
  EXPECT_EQ(&registry.counter("a_total", "A.", {{"l", "1"}}), &a);
  EXPECT_TRUE(has(registry.prometheus_text(), "a_total{l=\"1\"} 5\n"));
}

TEST(Metrics, UpdatesFromManyThreadsAllCount) {
  MetricRegistry registry;
  Counter& counter = registry.counter("n_total", "N.");
  Histogram& histogram = registry.histogram("h", "H.", latency_bounds());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counter.add();
        histogram.observe(0.5);
      }
    });
  }
  for (int i = 0; i < 10; ++i) (void)registry.prometheus_text();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 2000.0);
}

TEST(Metrics, LatencyBoundsStepFromMicrosecondsToMinutes) {
  const std::vector<double> bounds = latency_bounds();
  EXPECT_EQ(bounds.front(), 5e-5);
  EXPECT_EQ(bounds.back(), 100);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
}

TEST(MetricsDeathTest, WrongNamesAreABug) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.counter("tokens", "T."), "end in _total");
  EXPECT_DEATH(registry.gauge("tokens_total", "T."), "end in _total");
  EXPECT_DEATH(registry.gauge("a-b", "T."), "metric name");
  EXPECT_DEATH(registry.gauge("x_count", "T."), "belongs to histograms");
  EXPECT_DEATH(registry.gauge("x", "T.", {{"le", "1"}}), "label");
  registry.gauge("x", "T.");
  EXPECT_DEATH(registry.gauge("x", "other help"), "is registered as gauge");
  EXPECT_DEATH(registry.histogram("x", "T.", {1}), "is registered as gauge");
  EXPECT_DEATH(Histogram({2, 1}), "histogram bound 1");
}

}  // namespace
}  // namespace switchyard
