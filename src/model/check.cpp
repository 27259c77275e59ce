// SPDX-License-Identifier: Apache-2.0
#include "model/check.h"

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "model/model.h"
#include "tensor/convert.h"

namespace switchyard::model {
namespace {

// The first value that is not finite, in runs that stay in cache.
void check_finite(const checkpoint::Source& source, const checkpoint::TensorEntry& entry,
                  std::vector<Fault>& faults) {
  constexpr int64_t kRun = 4096;
  std::vector<std::byte> raw(kRun * sizeof(float));
  std::vector<float> values(kRun);
  const int64_t count = entry.shape.elements(), size = dtype_bytes(entry.dtype);
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t run = std::min(kRun, count - at);
    std::memcpy(raw.data(), entry.data + at * size, static_cast<size_t>(run * size));
    convert_to_f32(raw.data(), entry.dtype, run, values.data());
    for (int64_t i = 0; i < run; ++i) {
      if (std::isfinite(values[i])) continue;
      faults.push_back({"non_finite_weight",
                        fail(Code::bad_file, "{}: {}: element {} is {}: the file is damaged",
                             source.file_of(entry), entry.name, at + i, values[i])});
      return;
    }
  }
}

}  // namespace

Result<std::vector<Fault>> check_checkpoint(const std::string& folder, CheckDepth depth) {
  std::vector<Fault> faults;
  SWITCHYARD_ASSIGN(const Json json, read_json_file(folder + "/config.json"));
  Result<const Family*> family = find_family(json);
  if (!family.ok()) {
    faults.push_back({"unsupported_model", std::move(family).error()});
    return faults;
  }
  Result<ModelConfig> config = Model::read_config(folder);
  if (!config.ok()) {
    faults.push_back({"config", std::move(config).error()});
    return faults;
  }
  Result<checkpoint::Source> source = checkpoint::open_checkpoint(folder);
  if (!source.ok()) {
    faults.push_back({"file", std::move(source).error()});
    return faults;
  }
  TensorMap::build(**family, *config, *source, faults);
  if (depth == CheckDepth::headers) return faults;
  for (const checkpoint::TensorEntry& entry : source->tensors()) {
    if (is_plain_float(entry.dtype)) check_finite(*source, entry, faults);
  }
  return faults;
}

}  // namespace switchyard::model
