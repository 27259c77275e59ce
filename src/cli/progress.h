// SPDX-License-Identifier: Apache-2.0
// Progress of a load: a bar on a terminal, else one line each ten percent of a stage
// that takes more than a second.
#pragma once
#include <cstdint>
#include <string>

#include "switchyard/options.h"

#include "cli/terminal.h"

namespace switchyard::cli {

class ProgressBar {
 public:
  explicit ProgressBar(const Look& look) : look_(look) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const LoadProgress& progress);
  /// Takes the bar off the terminal, so that other text may follow.
  void clear();

 private:
  void draw(const LoadProgress& progress, double stage_s);

  Look look_;
  std::string stage_;
  int64_t stage_start_ns_ = 0, drawn_ns_ = 0;
  int last_tenth_ = -1;
  bool drawn_ = false;
};

}  // namespace switchyard::cli
