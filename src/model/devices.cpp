// SPDX-License-Identifier: Apache-2.0
#include "model/devices.h"

#include <charconv>

#include "base/check.h"
#include "device/cuda.h"
#include "kernels/cpu/ceilings.h"

namespace switchyard::model {
namespace {

Result<int64_t> host_bytes_available(int, int64_t host_bytes) { return host_bytes; }
Result<int64_t> cuda_bytes_available(int index, int64_t) { return cuda_free_bytes(index); }

// The host's kernels keep their partial sums in the arena of the step.
int64_t no_attention_bytes(const ModelConfig&, const LoadOptions&) { return 0; }

Result<double> measure_host_read_gbps(int, Pool& pool) {
  SWITCHYARD_ASSIGN(const cpu::Ceilings ceilings, cpu::measure_ceilings(pool));
  return ceilings.read_gbps_all;
}

constexpr Device kDevices[] = {
    {"cpu", DeviceId::Kind::cpu, load_on_host, host_bytes_available, 16, no_attention_bytes,
     measure_host_read_gbps},
    {"cuda", DeviceId::Kind::cuda, load_on_cuda, cuda_bytes_available, 64, cuda_attention_bytes,
     measure_cuda_read_gbps},
};

}  // namespace

const Device* find_device(DeviceId device) noexcept {
  for (const Device& entry : kDevices) {
    if (entry.kind == device.kind) return &entry;
  }
  SWITCHYARD_UNREACHABLE("device kind {}", static_cast<int>(device.kind));
}

Result<DeviceId> parse_device(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  int index = 0;
  bool fine = true;
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    fine = error == std::errc{} && end == digits.end() && index >= 0 && index < 128;
  }
  for (const Device& entry : kDevices) {
    if (fine && entry.name == kind) return DeviceId{entry.kind, static_cast<int8_t>(index)};
  }
  return fail(Code::bad_request, "there is no device '{}': expected cpu, cuda or cuda:N", name);
}

}  // namespace switchyard::model
