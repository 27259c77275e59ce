// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_cuda_ceilings.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/moe_baseline.h"

namespace switchyard::cli {
namespace {

namespace k = switchyard::cuda;

constexpr int kRuns = 9;

// Seconds: the median of kRuns, after one that does not count.
Result<double> median_seconds(CudaStream& stream, const std::function<void()>& work) {
  SWITCHYARD_ASSIGN(const CudaEvent begin, CudaEvent::create());
  SWITCHYARD_ASSIGN(const CudaEvent end, CudaEvent::create());
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    stream.record(begin);
    work();
    stream.record(end);
    SWITCHYARD_TRY(stream.synchronize("measure the device"));
    SWITCHYARD_ASSIGN(const double ms, end.ms_since(begin));
    if (run > 0) times.push_back(ms * 1e-3);
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

Result<double> read_gbps(CudaStream& stream) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  SWITCHYARD_ASSIGN(const CudaMemory memory, CudaMemory::allocate(kBytes + 256, "a read probe"));
  stream.fill(memory.data(), 1, memory.size());
  auto* const sink = reinterpret_cast<uint32_t*>(memory.data() + kBytes);
  SWITCHYARD_ASSIGN(const double seconds, median_seconds(stream, [&] {
                      k::read_memory(memory.data(), kBytes, sink, stream.handle());
                    }));
  return static_cast<double>(kBytes) / seconds * 1e-9;
}

Result<double> matmul_gflops(CudaStream& stream) {
  constexpr int64_t kSize = 8192, kMatrix = kSize * kSize;
  std::string why_not;
  const auto library = k::DenseLibrary::open(why_not);
  if (library == nullptr) {
    log(LogLevel::warning, "the floor counts bytes alone: no dense product to measure: {}",
        why_not);
    return 0.0;
  }
  SWITCHYARD_ASSIGN(const CudaMemory memory, CudaMemory::allocate(8 * kMatrix, "a dense product"));
  auto* const y = memory.as<float>();
  std::byte* const x = memory.data() + 4 * kMatrix;
  std::byte* const w = x + 2 * kMatrix;
  k::fill_random(x, DType::bf16, kMatrix, 1, 1, stream.handle());
  k::fill_random(w, DType::bf16, kMatrix, 1, 2, stream.handle());
  bool done = true;
  SWITCHYARD_ASSIGN(const double seconds, median_seconds(stream, [&] {
                      done &= library->run(
                          {.x = x, .weight = w, .tokens = kSize, .n = kSize, .k = kSize, .y = y},
                          stream.handle());
                    }));
  return done ? 2.0 * kSize * kMatrix / seconds * 1e-9 : 0.0;
}

Result<double> number_of(const Json& json, std::string_view key, const std::string& path) {
  const Json* value = json.find(key);
  if (value != nullptr && value->is_number() && value->as_double() >= 0) return value->as_double();
  return fail(Code::bad_file,
              "{}: {} should be a number of at least 0; remove the file to measure again", path,
              key);
}

Result<CudaCeilings> read_file(const std::string& path, const DeviceFacts& facts) {
  SWITCHYARD_ASSIGN(const Json json, read_json_file(path));
  const Json* device = json.find("device");
  if (device == nullptr || !device->is_string() || device->as_string() != facts.name) {
    return fail(Code::bad_request, "{}: not measured on a {}; remove the file to measure again",
                path, facts.name);
  }
  CudaCeilings ceilings;
  SWITCHYARD_ASSIGN(ceilings.read_gbps, number_of(json, "read_gbps_all", path));
  SWITCHYARD_ASSIGN(ceilings.matmul_gflops, number_of(json, "matmul_gflops", path));
  return ceilings;
}

Status write_file(const std::string& path, const DeviceFacts& facts, const CudaCeilings& ceilings) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object().field("device", facts.name);
  json.field("multiprocessors", facts.num_multiprocessors);
  json.field("read_gbps_all", ceilings.read_gbps);
  json.field("matmul_gflops", ceilings.matmul_gflops).end_object();
  return write_file_atomic(path, text + '\n');
}

}  // namespace

Result<CudaCeilings> load_cuda_ceilings(const std::string& path, const DeviceFacts& facts,
                                        CudaStream& stream) {
  if (!path.empty() && file_exists(path)) return read_file(path, facts);
  CudaCeilings ceilings;
  SWITCHYARD_ASSIGN(ceilings.read_gbps, read_gbps(stream));
  SWITCHYARD_ASSIGN(ceilings.matmul_gflops, matmul_gflops(stream));
  if (!path.empty()) SWITCHYARD_TRY(write_file(path, facts, ceilings));
  return ceilings;
}

}  // namespace switchyard::cli
