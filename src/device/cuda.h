// SPDX-License-Identifier: Apache-2.0
// CUDA as the rest of the program sees it, without a CUDA header: memory, pinned host memory, a stream of ordered work,
// events and captured graphs. Every owner frees what it owns; nothing here is thread-safe.
//
// Queued work reports late, so the stream keeps the first error it hears of, and synchronize() tells it: once a step.
// Built without CUDA (cuda_absent.cpp), whatever can be refused is refused with Code::unavailable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace switchyard {

/// What kernel launchers take: a cudaStream_t.
using CudaStreamHandle = CUstream_st*;

namespace cuda_detail {
struct FreeDevice {
  void operator()(std::byte* at) const noexcept;
};
struct FreePinned {
  void operator()(std::byte* at) const noexcept;
};
struct DestroyStream {
  void operator()(CUstream_st* stream) const noexcept;
};
struct DestroyEvent {
  void operator()(CUevent_st* event) const noexcept;
};
struct DestroyGraph {
  void operator()(CUgraphExec_st* graph) const noexcept;
};
}  // namespace cuda_detail

/// Memory of the current device, uninitialised, 256-byte aligned.
class CudaMemory {
 public:
  /// `purpose` names it in errors: "weights". Errors: Code::out_of_memory with what was free.
  static Result<CudaMemory> allocate(int64_t bytes, std::string_view purpose);

  std::byte* data() const noexcept { return data_.get(); }
  int64_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte, cuda_detail::FreeDevice> data_;
  int64_t size_ = 0;
};

/// Host memory that copies need not stage.
class PinnedMemory {
 public:
  static Result<PinnedMemory> allocate(int64_t bytes, std::string_view purpose);

  std::byte* data() const noexcept { return data_.get(); }
  int64_t size() const noexcept { return size_; }
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::unique_ptr<std::byte, cuda_detail::FreePinned> data_;
  int64_t size_ = 0;
};

/// A captured run of launches, ready to be replayed. Empty until it is captured.
class CudaGraph {
 public:
  explicit operator bool() const noexcept { return exec_ != nullptr; }

 private:
  friend class CudaStream;
  std::unique_ptr<CUgraphExec_st, cuda_detail::DestroyGraph> exec_;
};

class CudaStream;

/// A point in a stream's work.
class CudaEvent {
 public:
  static Result<CudaEvent> create();
  /// Milliseconds from `start` to this event; both must have been reached (synchronize first).
  Result<double> ms_since(const CudaEvent& start) const;

 private:
  friend class CudaStream;
  std::unique_ptr<CUevent_st, cuda_detail::DestroyEvent> event_;
};

class CudaStream {
 public:
  /// Makes the device current on this thread and opens a stream of it.
  static Result<CudaStream> open(int device);

  CudaStreamHandle handle() const noexcept { return stream_.get(); }
  int device() const noexcept { return device_; }
  /// Makes the stream's device current on the calling thread.
  void make_current() noexcept;

  // Queued; errors are kept for whichever comes first of those that tell errors below.
  void copy_in(void* device, const void* host, int64_t bytes) noexcept;
  void copy_out(void* host, const void* device, int64_t bytes) noexcept;
  /// `rows` pieces of `bytes` each, device pieces `device_pitch` apart, host pieces without a gap.
  void copy_rows_in(void* device, int64_t device_pitch, const void* host, int64_t bytes,
                    int64_t rows) noexcept;
  void fill(void* device, int byte, int64_t bytes) noexcept;
  void record(const CudaEvent& event) noexcept;
  void replay(const CudaGraph& graph) noexcept;

  /// Between these two, launches are recorded instead of run.
  Status begin_capture();
  Result<CudaGraph> end_capture();

  /// Waits. Errors: Code::device with the first error since the last call, launches included. After some errors (an
  /// illegal address) the device's context is lost, and every later call fails: the process must be started anew.
  Status synchronize(std::string_view what);
  /// Errors of launches so far, without waiting for them to end: whoever asks has them, and no later call tells them again.
  Status launched(std::string_view what);
  /// Waits until queued work has written `value` to a word of pinned memory, which need not be the last of the work. Spins for some
  /// milliseconds, then sleeps between looks. Errors as synchronize(); also when all work is done and the word is not there.
  Status wait_until(const int32_t* word, int32_t value, std::string_view what);
  /// Waits for such a word, but not beyond a time of now_ns(), in naps that end soon after the work has. Errors are for later.
  static void wait_before(int64_t deadline_ns, const int32_t* word, int32_t value) noexcept;

 private:
  Status report(std::string_view what);
  bool still_runs() noexcept;
  void keep(int error, const char* where) noexcept;

  std::unique_ptr<CUstream_st, cuda_detail::DestroyStream> stream_;
  int device_ = 0;
  int error_ = 0;  // the first, as a cudaError_t
  const char* where_ = "";
};

/// Bytes of the device's memory that can still be taken.
Result<int64_t> cuda_free_bytes(int device);

}  // namespace switchyard
