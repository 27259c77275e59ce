// SPDX-License-Identifier: Apache-2.0
// The reader of Prometheus text takes what the registry writes; damage is an error, never a guess.
#include "base/exposition.h"

#include <cmath>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

std::string registry_text() {
  MetricRegistry registry;
  registry.counter("a_total", "An a", {{"route", "/x"}, {"code", "200"}}).add(3);
  registry.counter("a_total", "An a", {{"route", "odd \"\\\n"}, {"code", "200"}}).add(4);
  registry.gauge("b_ratio", "A b").set(0.25);
  registry.float_counter("c_seconds_total", "A c", {{"phase", "p"}}).add(1.5);
  Histogram& histogram = registry.histogram("d_seconds", "A d", {0.1, 0.2, 0.4});
  for (const double value : {0.05, 0.15, 0.15, 0.3, 9.0}) histogram.observe(value);
  return registry.prometheus_text();
}

TEST(Exposition, ReadsWhatTheRegistryWrites) {
  const auto read = Exposition::parse(registry_text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->families().size(), 4U);
  EXPECT_EQ(read->find("a_total")->type, "counter");
  EXPECT_EQ(read->find("a_total")->help, "An a");
  EXPECT_EQ(read->find("a_total")->samples[1].label("route"), "odd \"\\\n");
  EXPECT_EQ(read->find("c_seconds_total")->type, "counter");
  EXPECT_DOUBLE_EQ(read->sum("a_total"), 7);
  EXPECT_DOUBLE_EQ(read->sum("a_total", {{"route", "/x"}}), 3);
  EXPECT_DOUBLE_EQ(read->sum("b_ratio"), 0.25);
  EXPECT_DOUBLE_EQ(read->sum("c_seconds_total"), 1.5);
  EXPECT_DOUBLE_EQ(read->sum("nobody_total"), 0);
  EXPECT_EQ(read->find("nobody_total"), nullptr);
}

TEST(Exposition, QuantilesAreEvenInsideABucket) {
  const auto read = Exposition::parse(registry_text());
  ASSERT_TRUE(read.ok());
  const Buckets buckets = buckets_of(*read, "d_seconds");
  ASSERT_EQ(buckets.counts, (std::vector<double>{1, 3, 4, 5}));
  EXPECT_DOUBLE_EQ(buckets.quantile(0.2), 0.1);
  EXPECT_DOUBLE_EQ(buckets.quantile(0.4), 0.15);  // the second of five: half way in (0.1, 0.2]
  EXPECT_DOUBLE_EQ(buckets.quantile(0.8), 0.4);
  EXPECT_DOUBLE_EQ(buckets.quantile(0.99), 0.4);  // above the last bound that is finite
  EXPECT_NEAR(buckets.sum, 9.65, 1e-12);
  EXPECT_TRUE(std::isnan(Buckets{}.quantile(0.5)));
}

TEST(Exposition, WhatCameSinceIsTheDifference) {
  Buckets early, late;
  early.bounds = late.bounds = {1, HUGE_VAL};
  early.counts = {2, 3};
  late.counts = {2, 7};
  EXPECT_EQ(late.since(early).counts, (std::vector<double>{0, 4}));
  EXPECT_EQ(early.since(late).counts, early.counts) << "counts that fell: another server";
}

TEST(Exposition, DamageIsAnError) {
  const char* const head = "# HELP a_total h\n# TYPE a_total counter\n";
  for (const char* line :
       {"a_total", "a_total ", "a_total x", "a_total{ 1", "a_total{x=\"1} 1", "a_total{x=1} 1",
        "b_total 1", "a_total_bucket 1", "a_total 1 2", "a_total{x=\"1\"}1", "\x01"}) {
    const auto read = Exposition::parse(std::string(head) + line + "\n");
    EXPECT_FALSE(read.ok()) << line;
  }
  EXPECT_FALSE(Exposition::parse("a_total 1\n").ok()) << "no family was named";
  EXPECT_FALSE(Exposition::parse("# TYPE  counter\n").ok());
  EXPECT_TRUE(Exposition::parse("# a comment\n\n").ok());
}

TEST(Exposition, TwoTextsBecomeOne) {
  MetricRegistry server, engine;
  server.counter("refused_total", "Refused", {{"reason", "key"}}).add(1);
  server.counter("refused_total", "Refused", {{"reason", "full"}}).add(2);
  server.gauge("server_only", "S").set(5);
  engine.gauge("engine_only", "E").set(6);
  engine.counter("refused_total", "Refused", {{"reason", "full"}}).add(40);
  engine.counter("refused_total", "Refused", {{"reason", "late"}}).add(7);
  const std::string text = join_expositions(server.prometheus_text(), engine.prometheus_text());
  EXPECT_EQ(text,
            "# HELP refused_total Refused\n"
            "# TYPE refused_total counter\n"
            "refused_total{reason=\"key\"} 1\n"
            "refused_total{reason=\"full\"} 42\n"
            "refused_total{reason=\"late\"} 7\n"
            "# HELP server_only S\n"
            "# TYPE server_only gauge\n"
            "server_only 5\n"
            "# HELP engine_only E\n"
            "# TYPE engine_only gauge\n"
            "engine_only 6\n");
  EXPECT_EQ(join_expositions("", engine.prometheus_text()), engine.prometheus_text());
  EXPECT_EQ(join_expositions(engine.prometheus_text(), ""), engine.prometheus_text());
}

}  // namespace
}  // namespace switchyard
