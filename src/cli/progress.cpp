// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/trace.h"

namespace switchyard::cli {
namespace {

constexpr int64_t kRedrawNs = 50'000'000;  // 20 times a second is smooth enough
constexpr double kSilentSeconds = 1;       // a log needs no lines about a load that is over at once

double share(const LoadProgress& progress) {
  if (progress.total_bytes <= 0) return 1;
  return std::clamp(
      static_cast<double>(progress.done_bytes) / static_cast<double>(progress.total_bytes), 0.0,
      1.0);
}

std::string rate_text(const LoadProgress& progress, double seconds) {
  if (seconds < 0.05 || progress.done_bytes == 0) return "";
  const double rate = static_cast<double>(progress.done_bytes) / seconds;
  const double left = static_cast<double>(progress.total_bytes - progress.done_bytes) / rate;
  return fmt::format(", {}/s, {} left", size_text(static_cast<int64_t>(rate)), time_text(left));
}

}  // namespace

void ProgressBar::update(const LoadProgress& progress) {
  const int64_t now = now_ns();
  if (stage_ != progress.stage) {
    clear();
    stage_ = progress.stage;
    stage_start_ns_ = now;
    drawn_ns_ = 0;
    last_tenth_ = -1;
  }
  const double stage_s = static_cast<double>(now - stage_start_ns_) * 1e-9;
  const int tenth = static_cast<int>(share(progress) * 10);
  if (look_.terminal) {
    if (now - drawn_ns_ < kRedrawNs && tenth < 10) return;
    drawn_ns_ = now;
    draw(progress, stage_s);
  } else if (tenth > last_tenth_ && stage_s > kSilentSeconds) {
    std::fprintf(stderr, "%s: %d%% of %s%s\n", progress.stage, tenth * 10,
                 size_text(progress.total_bytes).c_str(), rate_text(progress, stage_s).c_str());
  }
  last_tenth_ = tenth;
}

void ProgressBar::draw(const LoadProgress& progress, double stage_s) {
  constexpr int kBarColumns = 24;
  const std::string line =
      fmt::format("{} \u2595{}\u258F {} of {}{}", progress.stage, bar(share(progress), kBarColumns),
                  size_text(progress.done_bytes), size_text(progress.total_bytes),
                  rate_text(progress, stage_s));
  std::fprintf(stderr, "\r\033[K%s", clip(line, look_.columns - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace switchyard::cli
