// SPDX-License-Identifier: Apache-2.0
// CUDA devices, through the static runtime: the program starts without a driver and says what is
// missing.
#include "device/cuda.h"

#include <chrono>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "device/device.h"

namespace switchyard {
namespace {

Error no_driver(cudaError_t error) {
  return fail(Code::unavailable,
              "CUDA: no usable driver: {} ({}); install an NVIDIA driver for CUDA {}.{} or newer",
              cudaGetErrorString(error), cudaGetErrorName(error), CUDART_VERSION / 1000,
              CUDART_VERSION % 1000 / 10);
}

Error device_error(cudaError_t error, std::string_view what) {
  return fail(Code::device, "CUDA: {}: {} ({})", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
}

bool is_there(const int32_t* word, int32_t value) noexcept {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
}
bool spin_until(int64_t deadline_ns, const int32_t* word, int32_t value) noexcept {
  constexpr int kLooks = 64;  // between looks at the clock
  while (!is_there(word, value)) {
    if (now_ns() >= deadline_ns) return false;
    for (int i = 0; i < kLooks && !is_there(word, value); ++i) __builtin_ia32_pause();
  }
  return true;
}

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

Result<int> count_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice) return 0;
  if (counted != cudaSuccess) return no_driver(counted);
  return count;
}

// Selects a device for the calling thread, with errors that say what there is.
Status select_device(int device) {
  SWITCHYARD_ASSIGN(const int count, count_devices());
  if (count == 0) {
    return fail(Code::unavailable, "CUDA: the driver sees no device: use --device cpu");
  }
  if (device < 0 || device >= count) {
    return fail(Code::bad_request, "CUDA: there is no device {}: this machine has {}", device,
                count);
  }
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) return device_error(error, fmt::format("cannot use device {}", device));
  return {};
}

}  // namespace

namespace cuda_detail {
void FreeDevice::operator()(std::byte* at) const noexcept { cudaFree(at); }
void FreePinned::operator()(std::byte* at) const noexcept { cudaFreeHost(at); }
void DestroyStream::operator()(CUstream_st* stream) const noexcept { cudaStreamDestroy(stream); }
void DestroyEvent::operator()(CUevent_st* event) const noexcept { cudaEventDestroy(event); }
void DestroyGraph::operator()(CUgraphExec_st* graph) const noexcept { cudaGraphExecDestroy(graph); }
}  // namespace cuda_detail

Result<std::vector<DeviceFacts>> cuda_devices() {
  SWITCHYARD_ASSIGN(const int count, count_devices());
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      return fail(Code::device, "CUDA device {}: {}", i, cudaGetErrorString(error));
    }
    devices.push_back({properties.name, properties.major, properties.minor,
                       static_cast<int64_t>(properties.totalGlobalMem),
                       properties.multiProcessorCount});
  }
  return devices;
}

Result<int64_t> cuda_free_bytes(int device) {
  SWITCHYARD_TRY(select_device(device));
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return device_error(error, "cannot read the memory's size");
  return static_cast<int64_t>(free);
}

Result<CudaMemory> CudaMemory::allocate(int64_t bytes, std::string_view purpose) {
  CudaMemory memory;
  void* at = nullptr;
  const cudaError_t error = cudaMalloc(&at, static_cast<size_t>(bytes > 0 ? bytes : 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // an allocation that fails leaves the device usable
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return fail(Code::out_of_memory,
                "CUDA: {:.1f} MiB for {} do not fit: {:.1f} of {:.1f} MiB are free; use bf16, a "
                "smaller KV cache or a smaller model",
                mib(bytes), purpose, mib(static_cast<int64_t>(free)),
                mib(static_cast<int64_t>(total)));
  }
  if (error != cudaSuccess) {
    return device_error(error, fmt::format("{} bytes for {}", bytes, purpose));
  }
  memory.data_.reset(static_cast<std::byte*>(at));
  memory.size_ = bytes;
  return memory;
}

Result<PinnedMemory> PinnedMemory::allocate(int64_t bytes, std::string_view purpose) {
  PinnedMemory memory;
  void* at = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&at, static_cast<size_t>(bytes > 0 ? bytes : 1), cudaHostAllocDefault);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return fail(Code::out_of_memory, "CUDA: {:.1f} MiB of pinned host memory for {}: {}",
                mib(bytes), purpose, cudaGetErrorString(error));
  }
  memory.data_.reset(static_cast<std::byte*>(at));
  memory.size_ = bytes;
  return memory;
}

Result<CudaEvent> CudaEvent::create() {
  CudaEvent event;
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreate(&made);
  if (error != cudaSuccess) return device_error(error, "cannot make an event");
  event.event_.reset(made);
  return event;
}

Result<double> CudaEvent::ms_since(const CudaEvent& start) const {
  float ms = 0;
  const cudaError_t error = cudaEventElapsedTime(&ms, start.event_.get(), event_.get());
  if (error != cudaSuccess) return device_error(error, "cannot read the time between two events");
  return static_cast<double>(ms);
}

Result<CudaStream> CudaStream::open(int device) {
  SWITCHYARD_TRY(select_device(device));
  CudaStream stream;
  stream.device_ = device;
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  if (error != cudaSuccess) return device_error(error, "cannot open a stream");
  stream.stream_.reset(made);
  return stream;
}

void CudaStream::keep(int error, const char* where) noexcept {
  if (error == cudaSuccess || error_ != cudaSuccess) return;
  error_ = error;
  where_ = where;
}

void CudaStream::make_current() noexcept { keep(cudaSetDevice(device_), "select the device"); }

void CudaStream::copy_in(void* device, const void* host, int64_t bytes) noexcept {
  keep(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                       stream_.get()),
       "copy to the device");
}

void CudaStream::copy_out(void* host, const void* device, int64_t bytes) noexcept {
  keep(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                       stream_.get()),
       "copy from the device");
}

void CudaStream::copy_rows_in(void* device, int64_t device_pitch, const void* host, int64_t bytes,
                              int64_t rows) noexcept {
  const auto width = static_cast<size_t>(bytes);
  keep(cudaMemcpy2DAsync(device, static_cast<size_t>(device_pitch), host, width, width,
                         static_cast<size_t>(rows), cudaMemcpyHostToDevice, stream_.get()),
       "copy rows to the device");
}

void CudaStream::fill(void* device, int byte, int64_t bytes) noexcept {
  keep(cudaMemsetAsync(device, byte, static_cast<size_t>(bytes), stream_.get()), "fill memory");
}

void CudaStream::record(const CudaEvent& event) noexcept {
  keep(cudaEventRecord(event.event_.get(), stream_.get()), "record an event");
}

void CudaStream::replay(const CudaGraph& graph) noexcept {
  keep(cudaGraphLaunch(graph.exec_.get(), stream_.get()), "replay a graph");
}

Status CudaStream::begin_capture() {
  const cudaError_t error = cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return device_error(error, "cannot begin a capture");
  return {};
}

Result<CudaGraph> CudaStream::end_capture() {
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_.get(), &captured);
  if (ended != cudaSuccess) return device_error(ended, "a step could not be captured");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, captured, 0);
  cudaGraphDestroy(captured);
  if (made != cudaSuccess) return device_error(made, "a captured step could not be instantiated");
  CudaGraph graph;
  graph.exec_.reset(exec);
  return graph;
}

Status CudaStream::synchronize(std::string_view what) {
  keep(cudaGetLastError(), "launch a kernel");
  keep(cudaStreamSynchronize(stream_.get()), "run");
  return report(what);
}

Status CudaStream::launched(std::string_view what) {
  keep(cudaGetLastError(), "launch a kernel");
  return report(what);
}

Status CudaStream::report(std::string_view what) {
  if (error_ == cudaSuccess) return {};
  const auto error = static_cast<cudaError_t>(std::exchange(error_, cudaSuccess));
  return device_error(error, fmt::format("device {}, {}, {}", device_, what, where_));
}

// Keeps what the work that has failed did.
bool CudaStream::still_runs() noexcept {
  const cudaError_t state = cudaStreamQuery(stream_.get());
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // is no error
    return true;
  }
  keep(state, "run");
  return false;
}

Status CudaStream::wait_until(const int32_t* word, int32_t value, std::string_view what) {
  constexpr int64_t kSpinNs = 20'000'000;
  constexpr auto kNap = std::chrono::microseconds(50);
  keep(cudaGetLastError(), "launch a kernel");
  bool runs = error_ == cudaSuccess;
  if (runs && spin_until(now_ns() + kSpinNs, word, value)) return {};
  while (runs && !is_there(word, value)) {
    std::this_thread::sleep_for(kNap);
    runs = still_runs();
    if (!runs && !is_there(word, value)) {
      keep(cudaErrorUnknown, "the work is done, but gave no result");
    }
  }
  return report(what);
}

void CudaStream::wait_before(int64_t deadline_ns, const int32_t* word, int32_t value) noexcept {
  constexpr int64_t kWorthANap = 1'000'000, kLongestNap = 500'000;  // the deadline may be far off
  for (int64_t left = deadline_ns - now_ns(); left > kWorthANap; left = deadline_ns - now_ns()) {
    if (is_there(word, value)) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left / 4, kLongestNap)));
  }
  spin_until(deadline_ns, word, value);
}

}  // namespace switchyard
