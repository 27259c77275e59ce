// SPDX-License-Identifier: Apache-2.0
#include "cli/line_writer.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace switchyard::cli {

LineWriter::LineWriter(std::function<void(const std::string&)> put) : put_(std::move(put)) {
  dropped_text_ = [](uint64_t count) {
    return fmt::format("switchyard: {} lines of the log were dropped: nobody read them", count);
  };
  if (!put_)
    put_ = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); };
}

LineWriter::~LineWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void LineWriter::write(std::string line) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMostLines) {
    ++dropped_;
    return;
  }
  lines_.push_back(std::move(line));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_one();
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !lines_.empty(); });
    if (lines_.empty()) return;  // all written, and nothing more comes
    const std::vector<std::string> lines = std::exchange(lines_, {});
    const uint64_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    if (dropped > 0) text += dropped_text_(dropped) + '\n';
    put_(text);
    lock.lock();
  }
}

}  // namespace switchyard::cli
