// SPDX-License-Identifier: Apache-2.0
// Metrics text in the exposition format, and zones with their Chrome trace.
#include "base/metrics.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/trace.h"

namespace switchyard {
namespace {

TEST(Metrics, WritesHelpTypeAndSeries) {
  MetricRegistry registry;
  Counter& tokens = registry.counter("switchyard_generation_tokens_total", "Tokens produced.");
  tokens.add(3);
  registry.gauge("switchyard_kv_cache_usage_ratio", "Share in use.").set(0.25);
  registry.counter("switchyard_routed_total", "Picks.", {{"layer", "a\"b\\c\nd"}}).add();
  EXPECT_EQ(&registry.counter("switchyard_generation_tokens_total", "Tokens produced."), &tokens);
  const std::string text = registry.prometheus_text();
  EXPECT_NE(text.find("# HELP switchyard_generation_tokens_total Tokens produced.\n"
                      "# TYPE switchyard_generation_tokens_total counter\n"
                      "switchyard_generation_tokens_total 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("switchyard_kv_cache_usage_ratio 0.25\n"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(switchyard_routed_total{layer="a\"b\\c\nd"} 1)"), std::string::npos)
      << text;
}

TEST(Metrics, HistogramBucketsAreCumulative) {
  MetricRegistry registry;
  Histogram& h = registry.histogram("switchyard_step_duration_seconds", "Steps.", {0.1, 1});
  for (const double v : {0.05, 0.1, 0.5, 3.0}) h.observe(v);
  EXPECT_EQ(h.bucket(0), 2u);
  EXPECT_EQ(h.bucket(1), 1u);
  EXPECT_EQ(h.bucket(2), 1u);
  const std::string text = registry.prometheus_text();
  for (const char* line : {"_bucket{le=\"0.1\"} 2\n", "_bucket{le=\"1\"} 3\n",
                           "_bucket{le=\"+Inf\"} 4\n", "_count 4\n"}) {
    EXPECT_NE(text.find(std::string("switchyard_step_duration_seconds") + line), std::string::npos)
        << text;
  }
}

TEST(Tracer, SumsZonesOnlyWhenOn) {
  Tracer tracer;
  { const ZoneScope zone(&tracer, Zone::router, 0); }
  EXPECT_EQ(tracer.times()[Zone::router], 0);
  tracer.enable_sums(true);
  tracer.add(Zone::router, 2, 1000, 3500);
  tracer.add(Zone::router, 3, 5000, 5500);
  EXPECT_NEAR(tracer.times()[Zone::router], 3e-6, 1e-12);
  tracer.reset();
  EXPECT_EQ(tracer.times()[Zone::router], 0);
}

TEST(Tracer, ChromeTraceIsValidJsonOfAtMostTheEventsAskedFor) {
  Tracer tracer;
  tracer.enable_sums(true);
  tracer.enable_events(2);
  for (int i = 0; i < 5; ++i) tracer.add(Zone::gemm_up, i, 1000 * i, 1000 * i + 500);
  const auto json = parse_json(tracer.chrome_trace(), "trace");
  ASSERT_TRUE(json.ok()) << json.error().message;
  const Json::Array& events = json->find("traceEvents")->as_array();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].find("name")->as_string(), "gemm_up");
  EXPECT_EQ(events[1].find("ph")->as_string(), "X");
}

TEST(Zones, AreSortedByName) {
  for (int i = 1; i < kNumZones; ++i) {
    EXPECT_LT(zone_name(static_cast<Zone>(i - 1)), zone_name(static_cast<Zone>(i)));
  }
}

}  // namespace
}  // namespace switchyard
