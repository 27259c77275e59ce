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
  bool terminate_too = false;  // the reaction is to SIGTERM as well
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

bool is_handled(int signal) {
  if (signal != SIGTERM) return true;
  const std::lock_guard lock(state().mutex);
  return state().terminate_too;
}

/// As if the signal had never been blocked.
void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
}

bool is_ignored(int signal) {
  struct sigaction inherited {};
  return ::sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
}

void wait_for_signals(sigset_t set) {
  for (int signal = 0; ::sigwait(&set, &signal) == 0;) {
    if (!is_handled(signal)) end_by(signal);
    if (state().interrupted.exchange(true)) leave_now();
    // Under the lock: whoever takes the reaction away knows that it no longer runs.
    const std::lock_guard lock(state().mutex);
    if (!state().reaction) leave_now();
    state().reaction();
  }
}

}  // namespace

void Interrupts::install() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(wait_for_signals, set).detach();
}

void Interrupts::on_interrupt(std::function<void()> reaction) {
  const std::lock_guard lock(state().mutex);
  state().reaction = std::move(reaction);
  state().terminate_too = false;
}

void Interrupts::on_stop(std::function<void()> reaction) {
  const std::lock_guard lock(state().mutex);
  state().reaction = std::move(reaction);
  state().terminate_too = true;
}

bool Interrupts::interrupted() { return state().interrupted.load(); }

}  // namespace switchyard::cli
