// SPDX-License-Identifier: Apache-2.0
// The compute pool. How a job runs:
//
//   caller                                   worker p
//   writes the job, publishes epoch e        sees e on the shared word
//   works on its own share                   claims share p: own word e-1 -> e
//   claims what nobody has claimed           works, publishes e on its own word
//   waits for the claimed shares             waits for e+1
//
// All shares of job e are claimed before the caller leaves it, so a worker that comes late (asleep, or its core given
// to another process) fails its claim and never touches a job that is over: nobody waits for a thread that has not
// begun. Each worker writes its own cache line alone; the shared word is written once per job.
//
// A waiter on the core of another thread of the pool does not spin: it would hold up the very thread it waits for. That
// happens when a busy process takes the caller's core and the system moves the caller to a worker's.
#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/topology.h"
#include "base/wait_word.h"

namespace switchyard {
namespace {

constexpr int kMaxThreads = 1024;

/// This thread is inside a task (of any pool): jobs do not nest.
thread_local bool inside_task = false;

/// The number of this thread in its pool; callers are 0.
thread_local int own_number = 0;

class TaskScope {
 public:
  TaskScope() noexcept { inside_task = true; }
  ~TaskScope() { inside_task = false; }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
};

int usable_cores() {
  const Topology& machine = topology();
  const int cores = static_cast<int>(machine.cores.size());
  return machine.cpu_quota > 0 ? std::min(cores, machine.cpu_quota) : cores;
}

/// The number asked for by the options, by the environment, or by the machine.
int choose_num_threads(int asked) {
  if (asked > 0) return std::min(asked, kMaxThreads);
  if (const auto text = environment("SWITCHYARD_THREADS")) {
    int number = 0;
    const char* end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, number);
    if (error == std::errc() && rest == end && number >= 1 && number <= kMaxThreads) return number;
    log(LogLevel::warning,
        "SWITCHYARD_THREADS is \"{}\": expected a number from 1 to {}; one thread per core is used",
        *text, kMaxThreads);
  }
  return std::min(usable_cores(), kMaxThreads);
}

/// Failure is no fault: the thread then runs where the system puts it.
void pin_this_thread(int cpu) {
  const auto num_cpus = static_cast<size_t>(cpu) + 1;
  cpu_set_t* set = CPU_ALLOC(num_cpus);
  if (set == nullptr) return;
  const size_t size = CPU_ALLOC_SIZE(num_cpus);
  CPU_ZERO_S(size, set);
  CPU_SET_S(static_cast<size_t>(cpu), size, set);
  ::sched_setaffinity(0, size, set);
  CPU_FREE(set);
}

/// [begin, end) of part `index` of `parts` near-equal parts of [0, count): the first count % parts have one more.
std::pair<int64_t, int64_t> part_range(int64_t count, int64_t parts, int64_t index) {
  const int64_t size = count / parts, longer = count % parts;
  const int64_t begin = index * size + std::min(index, longer);
  return {begin, begin + size + (index < longer ? 1 : 0)};
}

/// One job: exactly one of the three callables is set.
struct Job {
  const FunctionRef<void(int64_t, int)>* each = nullptr;
  const FunctionRef<void(int64_t, int64_t, int)>* range = nullptr;
  const FunctionRef<void(int)>* all = nullptr;
  int64_t count = 0;
  int64_t parts = 0;  // of a range
};

}  // namespace

struct Pool::Impl {
  struct alignas(64) Worker {
    std::atomic<uint32_t> claimed{0};  // epoch of the last job whose share was claimed, by anyone
    std::atomic<int> cpu{-1};          // where the thread was last seen
    WaitWord done;                     // epoch of the last job whose share the worker has finished
  };

  explicit Impl(const PoolOptions& options)
      : num_threads(choose_num_threads(options.num_threads)),
        // Threads that share a core must give it up, so they hardly spin.
        spin_ns(num_threads <= usable_cores() ? int64_t{1000} * options.spin_us : 1000),
        workers(static_cast<size_t>(num_threads)) {
    const auto& cores = topology().cores;
    const bool pin = options.pin && environment("SWITCHYARD_PIN") != "0" &&
                     static_cast<size_t>(num_threads) <= cores.size();
    for (int i = 1; i < num_threads; ++i) {
      threads.emplace_back([this, i, cpu = pin ? cores[static_cast<size_t>(i)].cpu : -1] {
        ::pthread_setname_np(::pthread_self(), fmt::format("switchyard-{}", i).c_str());
        if (cpu >= 0) pin_this_thread(cpu);
        work(i);
      });
    }
  }

  ~Impl() {
    stopping = true;
    signal.publish(++epoch);
    for (std::thread& thread : threads) thread.join();
  }

  Worker& worker(int i) { return workers[static_cast<size_t>(i)]; }

  /// The life of worker i.
  void work(int i) noexcept {
    const TaskScope scope;
    own_number = i;
    uint32_t seen = 0;
    while (true) {
      seen = signal.wait_while(seen, spin_ns, [&] { return shares_core(); });
      if (!claim(i, seen)) continue;
      if (stopping) return;
      run_share(i);
      worker(i).done.publish(seen);
    }
  }

  /// True for exactly one caller per share and job; false also for a job that is over.
  bool claim(int i, uint32_t of) noexcept {
    uint32_t before = of - 1;
    return worker(i).claimed.compare_exchange_strong(before, of, std::memory_order_acq_rel,
                                                     std::memory_order_acquire);
  }

  void run_share(int i) noexcept {
    if (job.each != nullptr) {
      while (true) {
        const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= job.count) return;
        (*job.each)(index, i);
      }
    }
    if (job.all != nullptr) return (*job.all)(i);
    if (i >= job.parts) return;
    const auto [begin, end] = part_range(job.count, job.parts, i);
    (*job.range)(begin, end, i);
  }

  /// The caller's side of a job on more than one thread.
  void run(const Job& what) noexcept {
    job = what;
    worker(0).cpu.store(::sched_getcpu(), std::memory_order_relaxed);
    next.store(0, std::memory_order_relaxed);
    signal.publish(++epoch);
    run_share(0);
    for (int i = 1; i < num_threads; ++i) {
      // A region with barriers needs every thread; any other share is done here if its thread is late.
      if (job.all == nullptr && claim(i, epoch)) {
        run_share(i);
        rescued(i);
      }
    }
    for (int i = 1; i < num_threads; ++i) {
      if (!worker_skipped(i)) wait_for(i);
    }
  }

  void wait_for(int i) noexcept {
    WaitWord& done = worker(i).done;
    uint32_t seen = done.load();
    while (seen != epoch) seen = done.wait_while(seen, spin_ns, [&] { return shares_core(); });
  }

  /// True when another thread was last seen on this thread's core.
  bool shares_core() noexcept {
    const int cpu = ::sched_getcpu(), self = own_number;
    worker(self).cpu.store(cpu, std::memory_order_relaxed);
    for (int i = 0; i < num_threads; ++i) {
      if (i != self && worker(i).cpu.load(std::memory_order_relaxed) == cpu) return true;
    }
    return false;
  }

  // Shares that the caller took over in this job; read and written by the caller alone.
  void rescued(int i) { skipped[static_cast<size_t>(i)] = epoch; }
  bool worker_skipped(int i) const { return skipped[static_cast<size_t>(i)] == epoch; }

  void barrier() noexcept {
    SWITCHYARD_CHECK(inside_task, "a barrier outside on_all()");
    if (num_threads == 1) return;
    SWITCHYARD_CHECK(job.all != nullptr, "a barrier outside on_all()");
    // The phase cannot move before this thread has arrived, so reading it first is safe.
    const uint32_t phase = barrier_phase.load();
    if (barrier_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
      barrier_arrived.store(0, std::memory_order_relaxed);
      barrier_phase.publish(phase + 1);
    } else {
      barrier_phase.wait_while(phase, spin_ns, [&] { return shares_core(); });
    }
  }

  const int num_threads;
  const int64_t spin_ns;
  std::vector<Worker> workers;  // [num_threads]; of 0, the caller, only the cpu is used
  std::vector<uint32_t> skipped = std::vector<uint32_t>(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;

  // Written by the caller before `signal`, read by those who hold a claim.
  Job job;
  bool stopping = false;
  uint32_t epoch = 0;
  std::atomic<bool> busy{false};

  WaitWord signal;                           // the epoch of the current job
  alignas(64) std::atomic<int64_t> next{0};  // of for_each
  alignas(64) std::atomic<int> barrier_arrived{0};
  WaitWord barrier_phase;
};

namespace {

/// Holds the pool for one job: a second caller, or a call from inside a task, is a bug.
class JobScope {
 public:
  explicit JobScope(std::atomic<bool>& busy) noexcept : busy_(busy) {
    SWITCHYARD_CHECK(!inside_task, "a job inside a task: jobs do not nest");
    SWITCHYARD_CHECK(!busy_.exchange(true, std::memory_order_acquire),
                     "two threads use one pool at the same time");
  }
  ~JobScope() { busy_.store(false, std::memory_order_release); }
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace

Pool::Pool(const PoolOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Pool::~Pool() = default;

int Pool::num_threads() const noexcept { return impl_->num_threads; }

void Pool::for_each(int64_t count, FunctionRef<void(int64_t, int)> task) {
  if (count <= 0) return;
  const JobScope job(impl_->busy);
  const TaskScope inside;
  if (count == 1 || impl_->num_threads == 1) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  impl_->run({.each = &task, .count = count});
}

void Pool::for_range(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> task) {
  if (count <= 0) return;
  const JobScope job(impl_->busy);
  const TaskScope inside;
  const int64_t parts = std::min<int64_t>(impl_->num_threads, count / std::max<int64_t>(grain, 1));
  if (parts <= 1) return task(0, count, 0);
  impl_->run({.range = &task, .count = count, .parts = parts});
}

void Pool::on_all(FunctionRef<void(int)> body) {
  const JobScope job(impl_->busy);
  const TaskScope inside;
  if (impl_->num_threads == 1) return body(0);
  impl_->run({.all = &body});
}

void Pool::barrier() noexcept { impl_->barrier(); }

}  // namespace switchyard
