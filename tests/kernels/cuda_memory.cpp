// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_memory.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace switchyard::testing {
namespace {

constexpr int64_t kGuard = 4096;  // keeps the alignment of the allocation
constexpr unsigned char kGuardByte = 0xa5;

void expect_success(cudaError_t error, const char* what) {
  EXPECT_EQ(error, cudaSuccess) << what << ": " << cudaGetErrorString(error);
}

}  // namespace

int cuda_sm(std::string& why) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    why = counted != cudaSuccess ? cudaGetErrorString(counted) : "no device";
    return 0;
  }
  int major = 0, minor = 0;
  expect_success(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "major");
  expect_success(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "minor");
  return major * 10 + minor;
}

std::string cuda_error() {
  const cudaError_t done = cudaDeviceSynchronize();
  const cudaError_t last = cudaGetLastError();
  const cudaError_t error = done != cudaSuccess ? done : last;
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

bool replay_as_graph(const std::function<void(void* stream)>& work, int times) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  expect_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  expect_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  work(stream);
  bool captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess;
  captured = captured && cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess;
  for (int i = 0; captured && i < times; ++i) {
    expect_success(cudaGraphLaunch(ready, stream), "graph launch");
  }
  expect_success(cudaStreamSynchronize(stream), "graph");
  if (ready != nullptr) cudaGraphExecDestroy(ready);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return captured;
}

DeviceBytes::DeviceBytes(int64_t bytes) : bytes_(bytes) {
  void* base = nullptr;
  expect_success(cudaMalloc(&base, static_cast<size_t>(bytes + 2 * kGuard)), "cudaMalloc");
  base_ = static_cast<char*>(base);
  expect_success(cudaMemset(base_, kGuardByte, static_cast<size_t>(bytes + 2 * kGuard)), "guards");
  poison();
}
DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept
    : bytes_(other.bytes_), base_(std::exchange(other.base_, nullptr)) {}
DeviceBytes::~DeviceBytes() { cudaFree(base_); }

char* DeviceBytes::data() const noexcept { return base_ + kGuard; }
void DeviceBytes::poison() {
  expect_success(cudaMemset(data(), 0xff, static_cast<size_t>(bytes_)), "poison");
}
void DeviceBytes::zero() {
  expect_success(cudaMemset(data(), 0, static_cast<size_t>(bytes_)), "zero");
}
void DeviceBytes::upload(const void* from, int64_t bytes) {
  ASSERT_LE(bytes, bytes_);
  expect_success(cudaMemcpy(data(), from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
                 "upload");
}
void DeviceBytes::download(void* to, int64_t bytes) const {
  ASSERT_LE(bytes, bytes_);
  expect_success(cudaMemcpy(to, data(), static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
                 "download");
}
bool DeviceBytes::guards_are_intact() const {
  std::vector<unsigned char> guard(2 * kGuard);
  expect_success(cudaMemcpy(guard.data(), base_, kGuard, cudaMemcpyDeviceToHost), "guard before");
  expect_success(cudaMemcpy(guard.data() + kGuard, data() + bytes_, kGuard, cudaMemcpyDeviceToHost),
                 "guard behind");
  return std::all_of(guard.begin(), guard.end(),
                     [](unsigned char byte) { return byte == kGuardByte; });
}

}  // namespace switchyard::testing
