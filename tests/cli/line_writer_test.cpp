// SPDX-License-Identifier: Apache-2.0
// Lines leave in order and whole; who writes never waits, also when nobody takes them.
#include "cli/line_writer.h"

#include <condition_variable>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

namespace switchyard::cli {
namespace {

TEST(LineWriter, LinesLeaveInOrderAndAllBeforeItsEnd) {
  std::string out, expected;
  {
    LineWriter writer([&](const std::string& text) { out += text; });
    for (int i = 0; i < 1000; ++i) {
      writer.write("line " + std::to_string(i));
      expected += "line " + std::to_string(i) + "\n";
    }
  }
  EXPECT_EQ(out, expected);
}

TEST(LineWriter, WithNobodyReadingLinesAreDroppedAndCounted) {
  std::mutex mutex;
  std::condition_variable changed;
  bool blocked = false, reads = false;
  std::string out;
  {
    LineWriter writer([&](const std::string& text) {
      std::unique_lock lock(mutex);
      blocked = true;
      changed.notify_all();
      changed.wait(lock, [&] { return reads; });
      out += text;
    });
    writer.set_dropped_text([](uint64_t count) { return "dropped " + std::to_string(count); });
    writer.write("first");
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return blocked; });
    }
    for (size_t i = 0; i < LineWriter::kMostLines + 5; ++i) writer.write("more");
    const std::lock_guard lock(mutex);
    reads = true;
    changed.notify_all();
  }
  EXPECT_TRUE(out.starts_with("first\nmore\n"));
  EXPECT_TRUE(out.ends_with("more\ndropped 5\n")) << out.substr(out.size() - 40);
}

}  // namespace
}  // namespace switchyard::cli
