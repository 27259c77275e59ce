// SPDX-License-Identifier: Apache-2.0
// Devices that a model can be loaded onto: one line each in devices.cpp. Nothing else in the program asks which device it is.
#pragma once
#include <memory>
#include <string>

#include "model/model.h"

namespace switchyard::model {

using LoadModel = Result<std::unique_ptr<Model>>(const std::string& folder,
                                                 const ModelConfig& config,
                                                 const LoadOptions& options, Stream stream);

struct Device {
  std::string_view name;  ///< "cpu"
  DeviceId::Kind kind;
  LoadModel* load;
  /// Bytes that models may take there; host_bytes is what the host has. Errors: Code::unavailable without such a device.
  Result<int64_t> (*available_bytes)(int index, int64_t host_bytes);
  /// Positions of a KV block that its kernels are fastest with.
  int block_tokens;
  /// Bytes beside the model and the cache that attention takes in the largest step.
  int64_t (*attention_bytes)(const ModelConfig& config, const LoadOptions& options);
  /// What its memory gives at most, in GB/s, measured now (about a second, 1 GiB); `pool` reads where the device is the host.
  Result<double> (*measure_read_gbps)(int index, Pool& pool);
};

/// Never null: every kind has its line.
const Device* find_device(DeviceId device) noexcept;
/// Errors: Code::bad_request with the known names. "cuda:1" is the second device of that kind.
Result<DeviceId> parse_device(std::string_view name);

LoadModel load_on_host;  // model.cpp
LoadModel load_on_cuda;  // cuda/load.cpp or cuda/absent.cpp
int64_t cuda_attention_bytes(const ModelConfig& config, const LoadOptions& options);  // the same
Result<double> measure_cuda_read_gbps(int index,
                                      Pool& pool);  // cuda/read_speed.cpp or cuda/absent.cpp

}  // namespace switchyard::model
