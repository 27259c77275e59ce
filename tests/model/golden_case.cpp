// SPDX-License-Identifier: Apache-2.0
#include "model/golden_case.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tensor/convert.h"

namespace switchyard::test {
namespace fs = std::filesystem;

Result<GoldenCase> GoldenCase::open(const std::string& folder) {
  GoldenCase golden;
  SWITCHYARD_ASSIGN(const Json json, read_json_file(folder + "/golden.json"));
  SWITCHYARD_ASSIGN(golden.tensors_, checkpoint::open_checkpoint(folder + "/golden.safetensors"));
  golden.num_sequences_ = static_cast<int>(json.find("sequences")->as_array().size());
  if (const Json* agree = json.find("modes_agree")) golden.modes_agree_ = agree->as_bool();
  if (const Json* bf16 = json.find("bf16"); bf16 != nullptr && bf16->is_object()) {
    golden.bf16_rms_error_ = bf16->find("rms_error")->as_double();
  }
  for (const Json& layer : json.find("sparse_layers")->as_array()) {
    golden.sparse_layers_.push_back(static_cast<int>(layer.as_int()));
  }
  golden.layouts_.push_back(folder);
  const Json* layouts = json.find("layouts");  // variants have none
  for (size_t i = 1; layouts != nullptr && i < layouts->as_array().size(); ++i) {
    golden.layouts_.push_back(folder + "/" + layouts->as_array()[i].find("folder")->as_string());
  }
  return golden;
}

std::vector<int32_t> GoldenCase::integers(const std::string& name) const {
  const checkpoint::TensorEntry* entry = tensors_.find(name);
  SWITCHYARD_CHECK(entry != nullptr && entry->dtype == DType::i32, "golden tensor {}", name);
  std::vector<int32_t> values(entry->shape.elements());
  std::memcpy(values.data(), entry->data, entry->bytes());
  return values;
}

std::vector<float> GoldenCase::floats(const std::string& name) const {
  const checkpoint::TensorEntry* entry = tensors_.find(name);
  SWITCHYARD_CHECK(entry != nullptr && entry->dtype == DType::f32, "golden tensor {}", name);
  std::vector<float> values(entry->shape.elements());
  std::memcpy(values.data(), entry->data, entry->bytes());
  return values;
}

std::vector<std::string> golden_folders() {
  std::vector<std::string> folders;
  const fs::path root = fs::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/families";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "golden.json") {
      folders.push_back(entry.path().parent_path().string());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace switchyard::test
