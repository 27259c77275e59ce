// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first one calls what was asked for, the second ends the program at once with exit
// code 130. SIGTERM is the same for those who ask for it, and else ends the program as ever.
//
// The signals are blocked in every thread and taken by one that waits for them, so that the reaction is
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
  /// The same, of Ctrl-C and SIGTERM.
  static void on_stop(std::function<void()> reaction);
  static bool interrupted();
};

}  // namespace switchyard::cli
