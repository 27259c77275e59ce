// SPDX-License-Identifier: Apache-2.0
// Silent until a sink is set; then one message at a time, from any thread.
#include "base/log.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { set_log_sink({}); }
};

TEST_F(Log, IsSilentByDefault) {
  EXPECT_FALSE(log_enabled(LogLevel::error));
  log(LogLevel::error, "nobody hears {}", "this");
}

TEST_F(Log, PassesWhatIsHighEnough) {
  std::vector<std::string> heard;
  set_log_sink([&](LogLevel, std::string_view text) { heard.emplace_back(text); },
               LogLevel::warning);
  log(LogLevel::info, "low");
  log(LogLevel::warning, "disk {} % full", 91);
  log(LogLevel::error, "high");
  EXPECT_EQ(heard, (std::vector<std::string>{"disk 91 % full", "high"}));
}

TEST_F(Log, CallsTheSinkOneAtATime) {
  int count = 0;  // unguarded: the thread sanitizer would see two calls at once
  set_log_sink([&](LogLevel, std::string_view) { ++count; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log(LogLevel::info, "{}", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 2000);
}

}  // namespace
}  // namespace switchyard
