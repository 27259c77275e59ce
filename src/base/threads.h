// SPDX-License-Identifier: Apache-2.0
// The compute pool: pinned threads that wait a bounded time in a spin and then sleep, so that a busy neighbour on a
// core slows us by its share and no more. The caller is thread 0 and works too.
//
// There is no work stealing and no allocation in a run: a job is a reference to a callable plus an atomic counter.
// One job at a time; jobs do not nest. Exceptions must not leave a task.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

namespace switchyard {

/// A non-owning reference to a callable; valid while the callable lives.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& f)
  noexcept  // NOLINT: an implicit view, like string_view
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

struct PoolOptions {
  int num_threads = 0;  ///< 0: SWITCHYARD_THREADS, else one per usable core
  bool pin = true;      ///< to one core each, node by node
  int spin_us = 50;     ///< how long an idle thread spins before it sleeps
};

/// The workers are pinned, each to one core, from the second usable core on; the caller is left where it is, since
/// every thread that it starts later would inherit its mask.
class Pool {
 public:
  explicit Pool(const PoolOptions& options = {});
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int num_threads() const noexcept;

  /// Runs task(i, thread) for i in [0, count), handed out one by one by an atomic counter: for uneven tasks.
  /// Runs inline when count is 1 or the pool has one thread.
  void for_each(int64_t count, FunctionRef<void(int64_t index, int thread)> task);

  /// Runs task(begin, end, thread) over static, near-equal parts of [0, count); parts of fewer than `grain` are
  /// merged, so that small work runs inline without waking anyone. The parts depend on count, grain and the number of
  /// threads alone; `thread` is the number of the part, so that results kept per thread come out the same each time
  /// (another thread may run the part when its own is late).
  void for_range(int64_t count, int64_t grain,
                 FunctionRef<void(int64_t begin, int64_t end, int thread)> task);

  /// Runs body(thread) once on every thread: for regions with several phases (see barrier()).
  void on_all(FunctionRef<void(int thread)> body);

  /// Waits for all threads of the current on_all().
  void barrier() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
