// SPDX-License-Identifier: Apache-2.0
#include "cli/line_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace switchyard::cli {

LineWriter::LineWriter(std::function<void(const std::string&)> put) : put_(std::move(put)) {
  dropped_text_ = [](uint64_t count) {
    return fmt::format("switchyard: {} lines of the log were dropped: nobody read them", count);
  };
  if (!put_) put_ = [this](const std::string& text) { put_to_stderr(text); };
}

LineWriter::~LineWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
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
  changed_.notify_all();
}

void LineWriter::flush(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return lines_.empty() && !writing_; });
}

// Past the FILE, whose lock everybody else who prints would then wait for. A pipe that is ready takes a page at once.
void LineWriter::put_to_stderr(std::string_view text) const {
  constexpr size_t kPage = 4096;
  constexpr int kLookMs = 50;
  double waited_s = 0;
  while (!text.empty()) {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&out, 1, kLookMs) <= 0) {
      if (stopping_ && (waited_s += kLookMs * 1e-3) > kPatienceSeconds) return;
      continue;
    }
    const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kPage));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;  // nobody can ever read it
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !lines_.empty(); });
    if (lines_.empty()) return;  // all written, and nothing more comes
    const std::vector<std::string> lines = std::exchange(lines_, {});
    const uint64_t dropped = std::exchange(dropped_, 0);
    writing_ = true;
    lock.unlock();
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    if (dropped > 0) text += dropped_text_(dropped) + '\n';
    put_(text);
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace switchyard::cli
