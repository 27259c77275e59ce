// SPDX-License-Identifier: Apache-2.0
// Built in place of cuda.cpp where no CUDA toolkit was found or wanted. Nothing can be opened, so what works on an
// opened thing is never reached.
#include "device/cuda.h"
#include "device/device.h"

namespace switchyard {
namespace {

Error absent() {
  return fail(Code::unavailable, "built without CUDA: configure with -DSWITCHYARD_CUDA=ON");
}

}  // namespace

namespace cuda_detail {
void FreeDevice::operator()(std::byte*) const noexcept {}
void FreePinned::operator()(std::byte*) const noexcept {}
void DestroyStream::operator()(CUstream_st*) const noexcept {}
void DestroyEvent::operator()(CUevent_st*) const noexcept {}
void DestroyGraph::operator()(CUgraphExec_st*) const noexcept {}
}  // namespace cuda_detail

Result<std::vector<DeviceFacts>> cuda_devices() { return absent(); }
Result<int64_t> cuda_free_bytes(int) { return absent(); }
Result<CudaMemory> CudaMemory::allocate(int64_t, std::string_view) { return absent(); }
Result<PinnedMemory> PinnedMemory::allocate(int64_t, std::string_view) { return absent(); }
Result<CudaEvent> CudaEvent::create() { return absent(); }
Result<double> CudaEvent::ms_since(const CudaEvent&) const { return absent(); }
Result<CudaStream> CudaStream::open(int) { return absent(); }
void CudaStream::make_current() noexcept {}
void CudaStream::copy_in(void*, const void*, int64_t) noexcept {}
void CudaStream::copy_out(void*, const void*, int64_t) noexcept {}
void CudaStream::copy_rows_in(void*, int64_t, const void*, int64_t, int64_t) noexcept {}
void CudaStream::fill(void*, int, int64_t) noexcept {}
void CudaStream::record(const CudaEvent&) noexcept {}
void CudaStream::replay(const CudaGraph&) noexcept {}
Status CudaStream::begin_capture() { return absent(); }
Result<CudaGraph> CudaStream::end_capture() { return absent(); }
Status CudaStream::synchronize(std::string_view) { return absent(); }
void CudaStream::wait_before(int64_t, const int32_t*, int32_t) noexcept {}
Status CudaStream::wait_until(const int32_t*, int32_t, std::string_view) { return absent(); }

}  // namespace switchyard
