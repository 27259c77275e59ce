// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first one calls what was asked for, the second ends the program at once with exit
// code 130.
//
// The signal is blocked in every thread and taken by one that waits for it, so that the reaction is
// ordinary code and not a signal handler.
#pragma once
#include <functional>

namespace switchyard::cli {

class Interrupts {
 public:
  /// Before any other thread is started: new threads inherit the block.
  static void install();
  /// What the first Ctrl-C does; an empty function: end the program at once. Called from the
  /// waiting thread.
  static void on_interrupt(std::function<void()> reaction);
  static bool interrupted();
};

}  // namespace switchyard::cli
