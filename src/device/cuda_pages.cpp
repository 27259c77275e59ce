// SPDX-License-Identifier: Apache-2.0
// Source: CUDA driver API, "Virtual Memory Management".
#include "device/cuda_pages.h"

#include <utility>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace switchyard {
namespace {

// The driver's functions, found when they are first needed: the program starts without a driver.
struct Driver {
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  bool complete = false;

  Driver() {
    complete = find("cuMemCreate", create) && find("cuMemRelease", release) &&
               find("cuMemAddressReserve", reserve) && find("cuMemAddressFree", free) &&
               find("cuMemMap", map) && find("cuMemUnmap", unmap) &&
               find("cuMemSetAccess", set_access);
  }

 private:
  template <class Function>
  static bool find(const char* name, Function& function) {
    constexpr unsigned kVersion = 10020;  // which has them all
    cudaDriverEntryPointQueryResult found{};
    void* at = nullptr;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &at, kVersion, cudaEnableDefault, &found);
    function = reinterpret_cast<Function>(at);
    if (error != cudaSuccess) (void)cudaGetLastError();  // or the next launch would be blamed
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess;
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

Error refused(const char* what, CUresult error) {
  return fail(Code::unavailable, "CUDA: memory by pages: {}: error {} of the driver", what,
              static_cast<int>(error));
}

CUmemLocation current_location() {
  int device = 0;
  cudaGetDevice(&device);
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

// As cudaFree does: work that reaches the pages may be under way.
void wait_for(int device) {
  int current = 0;
  cudaGetDevice(&current);
  cudaSetDevice(device);
  if (cudaDeviceSynchronize() != cudaSuccess)
    (void)cudaGetLastError();  // told where work is awaited
  cudaSetDevice(current);
}

}  // namespace

struct CudaPages::State {
  CUdeviceptr base = 0;
  int64_t reserved = 0, mapped = 0;  // pages; those before `mapped` are mapped, or were
  std::vector<CUmemGenericAllocationHandle> handles;
  CUmemAccessDesc access{};

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    const Driver& call = driver();
    if (mapped > 0) wait_for(access.location.id);
    for (int64_t page = 0; page < mapped; ++page) call.unmap(at(page), kPageBytes);
    release();
    if (base != 0) call.free(base, reserved * kPageBytes);
  }
  void release() {
    for (const CUmemGenericAllocationHandle handle : handles) driver().release(handle);
    handles.clear();
  }
  CUdeviceptr at(int64_t page) const { return base + page * kPageBytes; }

  Status create(int64_t count) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = access.location;
    for (int64_t i = 0; i < count; ++i) {
      CUmemGenericAllocationHandle handle = 0;
      const CUresult error = driver().create(&handle, kPageBytes, &properties, 0);
      if (error != CUDA_SUCCESS) return refused("a page", error);
      handles.push_back(handle);
    }
    return {};
  }
  Status map(int64_t page) {
    const CUresult error = driver().map(at(page), kPageBytes, 0, handles[page], 0);
    return error == CUDA_SUCCESS ? Status() : Status(refused("mapping a page", error));
  }
  Status allow(int64_t page, int64_t pages) {
    const CUresult error = driver().set_access(at(page), pages * kPageBytes, &access, 1);
    return error == CUDA_SUCCESS ? Status() : Status(refused("access to pages", error));
  }
};

CudaPages::CudaPages() noexcept = default;
CudaPages::CudaPages(CudaPages&&) noexcept = default;
CudaPages& CudaPages::operator=(CudaPages&&) noexcept = default;
CudaPages::~CudaPages() = default;

Result<CudaPages> CudaPages::allocate(int64_t bytes) {
  cudaFree(nullptr);  // a context, if there is none yet
  if (!driver().complete) return fail(Code::unavailable, "CUDA: the driver has no memory by pages");
  size_t left = 0, total = 0;
  if (cudaMemGetInfo(&left, &total) != cudaSuccess) (void)cudaGetLastError();
  if (bytes > static_cast<int64_t>(left)) {
    return fail(Code::out_of_memory, "CUDA: memory by pages: {} bytes of {} are left", left, total);
  }
  CudaPages pages;
  pages.state_ = std::make_unique<State>();
  State& state = *pages.state_;
  state.access.location = current_location();
  state.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const int64_t count = (bytes + kPageBytes - 1) / kPageBytes;
  SWITCHYARD_TRY(state.create(count));
  const CUresult error = driver().reserve(&state.base, count * kPageBytes, 2 * kPageBytes, 0, 0);
  if (error != CUDA_SUCCESS) return refused("a range of addresses", error);
  state.reserved = count;
  for (int64_t page = 0; page < count; ++page) {
    SWITCHYARD_TRY(state.map(page));
    state.mapped = page + 1;
  }
  SWITCHYARD_TRY(state.allow(0, count));
  return pages;
}

std::byte* CudaPages::data() const noexcept {
  return state_ == nullptr ? nullptr : reinterpret_cast<std::byte*>(state_->base);
}

int64_t CudaPages::num_pages() const noexcept { return state_ == nullptr ? 0 : state_->mapped; }

Status CudaPages::exchange(int64_t a, int64_t b) {
  for (const int64_t page : {a, b}) {
    const CUresult error = driver().unmap(state_->at(page), kPageBytes);
    if (error != CUDA_SUCCESS) return refused("unmapping a page", error);
  }
  std::swap(state_->handles[a], state_->handles[b]);
  for (const int64_t page : {a, b}) {
    SWITCHYARD_TRY(state_->map(page));
    SWITCHYARD_TRY(state_->allow(page, 1));
  }
  return {};
}

void CudaPages::settle() noexcept { state_->release(); }

}  // namespace switchyard
