// SPDX-License-Identifier: Apache-2.0
// LineWriter: lines to standard error from a thread of its own, so that who writes never waits for a pipe that nobody
// reads. When it is too far behind, lines are dropped and counted; the count becomes a line. At its end it waits for a
// reader no longer than kPatienceSeconds, so that the program ends whether somebody reads or not.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace switchyard::cli {

class LineWriter {
 public:
  static constexpr size_t kMostLines = 8192;
  static constexpr double kPatienceSeconds = 1;

  /// `put` writes text that ends in a newline; by default to standard error.
  explicit LineWriter(std::function<void(const std::string&)> put = {});
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Any thread. The thread starts with the first line.
  void write(std::string line);
  /// Waits until all lines have left, but no longer than that.
  void flush(double seconds);
  /// How it says how many lines were dropped. Before the first line.
  void set_dropped_text(std::function<std::string(uint64_t)> text) {
    dropped_text_ = std::move(text);
  }

 private:
  void run();
  void put_to_stderr(std::string_view text) const;

  std::function<void(const std::string&)> put_;
  std::function<std::string(uint64_t)> dropped_text_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  uint64_t dropped_ = 0;
  bool writing_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace switchyard::cli
