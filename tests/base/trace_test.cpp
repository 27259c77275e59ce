// SPDX-License-Identifier: Apache-2.0
// Sums per zone, and a Chrome trace that reads back as JSON.
#include "base/trace.h"

#include <thread>

#include <gtest/gtest.h>

#include "base/json.h"

namespace switchyard {
namespace {

TEST(Trace, ZonesHaveTheirNamesInOrder) {
  EXPECT_EQ(zone_name(Zone::activation), "activation");
  EXPECT_EQ(zone_name(Zone::gemm_up), "gemm_up");
  EXPECT_EQ(zone_name(Zone::sort), "sort");
  for (int i = 1; i < kNumZones; ++i) {
    EXPECT_LT(zone_name(static_cast<Zone>(i - 1)), zone_name(static_cast<Zone>(i)));
  }
}

TEST(Trace, SumsUntilReset) {
  Tracer tracer;
  tracer.add(Zone::router, 0, 1'000, 4'000);
  tracer.add(Zone::router, 1, 10'000, 11'000);
  tracer.add(Zone::norm, 1, 0, 500);
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::router], 4e-6);
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::norm], 5e-7);
  EXPECT_EQ(tracer.times()[Zone::sort], 0);
  tracer.reset();
  EXPECT_EQ(tracer.times()[Zone::router], 0);
}

TEST(Trace, AScopeThatIsOffAddsNothing) {
  Tracer tracer;
  { const ZoneScope off(&tracer, Zone::gather); }
  { const ZoneScope none(nullptr, Zone::gather); }
  EXPECT_EQ(tracer.times()[Zone::gather], 0);
  tracer.enable_sums(true);
  {
    const ZoneScope on(&tracer, Zone::gather, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GE(tracer.times()[Zone::gather], 0.002);
}

TEST(Trace, KeepsSumsOfEachLayer) {
  Tracer tracer;
  tracer.set_layers(2);
  tracer.add(Zone::router, 0, 0, 1'000);
  tracer.add(Zone::router, 1, 0, 2'000);
  tracer.add(Zone::router, 1, 0, 3'000);
  tracer.add(Zone::norm, -1, 0, 100);
  tracer.add(Zone::norm, 2, 0, 10);  // no such layer: counts with those of none
  const std::vector<ZoneTimes> layers = tracer.layer_times();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_DOUBLE_EQ(layers[0][Zone::router], 1e-6);
  EXPECT_DOUBLE_EQ(layers[1][Zone::router], 5e-6);
  EXPECT_EQ(layers[0][Zone::norm] + layers[1][Zone::norm], 0);
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::router], 6e-6);
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::norm], 1.1e-7);
  tracer.reset();
  EXPECT_EQ(tracer.layer_times()[1][Zone::router], 0);
  EXPECT_TRUE(Tracer().layer_times().empty());
}

/// The complete events of a Chrome trace; before them stand the names of process and thread.
Json::Array complete_events(const Json& trace) {
  Json::Array events;
  for (const Json& event : trace.find("traceEvents")->as_array()) {
    for (const char* key : {"name", "ph", "ts", "pid", "tid"})
      EXPECT_NE(event.find(key), nullptr) << key;
    if (event.find("ph")->as_string() == "X") events.push_back(event);
  }
  return events;
}

TEST(Trace, StepsEncloseLayersEncloseZones) {
  Tracer tracer;
  tracer.enable_events(10);
  tracer.add(Zone::norm, 0, 1'000, 2'000);  // as they end: the inner ones first
  tracer.add_layer(0, 1'000, 3'000);
  tracer.add_step(7, 2, 1'000, 3'000);
  const auto events = complete_events(*parse_json(tracer.chrome_trace(), "trace"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].find("name")->as_string(), "step");
  EXPECT_EQ(events[0].find("args")->find("tokens")->as_int(), 7);
  EXPECT_EQ(events[0].find("args")->find("sequences")->as_int(), 2);
  EXPECT_EQ(events[1].find("name")->as_string(), "layer 0");
  EXPECT_EQ(events[1].find("cat")->as_string(), "layer");
  EXPECT_EQ(events[2].find("name")->as_string(), "norm");
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::norm], 1e-6) << "what encloses is in no sum";
  Tracer sums_alone;
  sums_alone.enable_sums(true);
  sums_alone.add_step(1, 1, 0, 10);
  { const LayerScope off(&sums_alone, 0); }
  { const LayerScope none(nullptr, 0); }
  EXPECT_TRUE(complete_events(*parse_json(sums_alone.chrome_trace(), "trace")).empty());
}

TEST(Trace, WritesAChromeTrace) {
  Tracer tracer;
  tracer.enable_events(2);
  EXPECT_TRUE(tracer.on());
  tracer.add(Zone::norm, 0, 1'500, 2'750);
  tracer.add(Zone::embedding, -1, 1'000, 3'000);  // ends later, begins earlier
  tracer.add(Zone::sort, 0, 4'000, 5'000);        // does not fit any more
  const Json trace = *parse_json(tracer.chrome_trace(), "trace");
  const auto events = complete_events(trace);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].find("name")->as_string(), "embedding");
  EXPECT_EQ(events[0].find("args"), nullptr);
  EXPECT_EQ(events[1].find("name")->as_string(), "norm");
  EXPECT_DOUBLE_EQ(events[1].find("ts")->as_double(), 0.5);  // microseconds after the first begin
  EXPECT_DOUBLE_EQ(events[1].find("dur")->as_double(), 1.25);
  EXPECT_EQ(events[1].find("args")->find("layer")->as_int(), 0);
  EXPECT_EQ(trace.find("otherData")->find("dropped_events")->as_int(), 1);
  EXPECT_DOUBLE_EQ(tracer.times()[Zone::sort], 1e-6);  // the sum still counts it
}

TEST(Trace, EmptyTraceIsValid) {
  const Json trace = *parse_json(Tracer().chrome_trace(), "trace");
  EXPECT_TRUE(complete_events(trace).empty());
}

TEST(Trace, MayBeReadWhileItIsWritten) {
  Tracer tracer;
  tracer.enable_events(5000);
  std::thread writer([&] {
    for (int i = 0; i < 5000; ++i) tracer.add(Zone::combine, i, i, i + 10);
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(parse_json(tracer.chrome_trace(), "trace").ok());
    EXPECT_LE(tracer.times()[Zone::combine], 5e-5 + 1e-12);
  }
  writer.join();
}

}  // namespace
}  // namespace switchyard
