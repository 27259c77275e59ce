// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupts.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "cli/exit_code.h"

namespace switchyard::cli {
namespace {

/// Lives as long as the process: the waiting thread may look at it until the very end.
struct State {
  std::mutex mutex;
  std::function<void()> reaction;
  std::atomic<bool> interrupted{false};
};

State& state() {
  static State* const only = new State;
  return *only;
}

[[noreturn]] void leave_now() {
  // Back to the start of a line and to plain text, whatever was being drawn. write() and _exit()
  // alone: the main thread may hold any lock.
  constexpr char kReset[] = "\033[0m\n";
  if (::isatty(STDERR_FILENO) == 1) (void)!::write(STDERR_FILENO, kReset, sizeof(kReset) - 1);
  ::_exit(kInterrupted);
}

void wait_for_signals(sigset_t set) {
  for (int signal = 0; ::sigwait(&set, &signal) == 0;) {
    if (state().interrupted.exchange(true)) leave_now();
    // Under the lock: whoever takes the reaction away knows that it no longer runs.
    const std::lock_guard lock(state().mutex);
    if (!state().reaction) leave_now();
    state().reaction();
  }
}

}  // namespace

void Interrupts::install() {
  struct sigaction inherited {};
  if (::sigaction(SIGINT, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(wait_for_signals, set).detach();
}

void Interrupts::on_interrupt(std::function<void()> reaction) {
  const std::lock_guard lock(state().mutex);
  state().reaction = std::move(reaction);
}

bool Interrupts::interrupted() { return state().interrupted.load(); }

}  // namespace switchyard::cli
