// SPDX-License-Identifier: Apache-2.0
// From the checkpoint's maps to the device: converted by the pool into pinned memory, copied, and packed there where the
// experts' kernel wants it. Source pages are given back once they are copied.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/ops/moe_pack.h"
#include "model/cuda/weights.h"
#include "tensor/convert.h"

namespace switchyard::model::cuda {
namespace {

using checkpoint::TensorEntry;

constexpr int64_t kStagingBytes = int64_t{32} << 20;

// Elements of any plain float type, at any address, as f32 or bf16.
void convert(const std::byte* from, DType from_type, int64_t count, DType to_type, std::byte* to) {
  constexpr int64_t kPiece = 1024;
  std::array<std::byte, kPiece * 4> aligned{};
  std::array<float, kPiece> values{};
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(count * dtype_bytes(to_type)));
    return;
  }
  const int64_t from_bytes = dtype_bytes(from_type), to_bytes = dtype_bytes(to_type);
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t piece = std::min(kPiece, count - done);
    std::memcpy(aligned.data(), from + done * from_bytes, static_cast<size_t>(piece * from_bytes));
    convert_to_f32(aligned.data(), from_type, piece, values.data());
    if (to_type == DType::bf16) {
      convert_to_bf16(values.data(), piece, to + done * to_bytes);
    } else {
      std::memcpy(to + done * to_bytes, values.data(), static_cast<size_t>(piece * to_bytes));
    }
  }
}

class Uploader {
 public:
  Uploader(const WeightReader& reader, const ModelConfig& config, Weights& weights,
           CudaStream& stream)
      : reader_(reader), config_(config), weights_(weights), stream_(stream) {}

  Status run();

 private:
  Status put(const TensorEntry& entry, int64_t first, int64_t count, DType dtype, std::byte* to);
  Status put(const TensorEntry& entry, DType dtype, std::byte* to) {
    SWITCHYARD_TRY(put(entry, 0, entry.shape.elements(), dtype, to));
    done_with(entry);
    return {};
  }
  Status put_rows(std::initializer_list<TensorRole> roles, int layer, const Matrix& matrix,
                  DType dtype);
  Status put_vector(TensorRole role, int layer, float* to, float scale = 1);
  Status put_pair(const TensorEntry& gate, const TensorEntry& up, const Matrix& matrix);
  Status put_attention(int layer);
  Status put_dense(int layer);
  Status put_shared(int layer);
  Status put_experts(int layer);
  Status put_expert(int layer, int expert);
  Status pack_expert(int layer, int expert);
  void done_with(const TensorEntry& entry) const {
    reader_.source.drop(entry);
    if (reader_.on_bytes) reader_.on_bytes(entry.bytes());
  }

  const WeightReader& reader_;
  const ModelConfig& config_;
  Weights& weights_;
  CudaStream& stream_;
  PinnedMemory staging_;
  CudaMemory unpacked_;  // one expert's gate, up and down
};

Status Uploader::put(const TensorEntry& entry, int64_t first, int64_t count, DType dtype,
                     std::byte* to) {
  const int64_t to_bytes = dtype_bytes(dtype), from_bytes = dtype_bytes(entry.dtype);
  const int64_t most = kStagingBytes / to_bytes;
  for (int64_t done = 0; done < count; done += most) {
    const int64_t piece = std::min(most, count - done);
    const std::byte* from = entry.data + (first + done) * from_bytes;
    reader_.pool.for_range(piece, 65536, [&](int64_t begin, int64_t end, int) {
      convert(from + begin * from_bytes, entry.dtype, end - begin, dtype,
              staging_.data() + begin * to_bytes);
    });
    stream_.copy_in(to + done * to_bytes, staging_.data(), piece * to_bytes);
    SWITCHYARD_TRY(stream_.synchronize("copy weights"));  // the staging is free again
  }
  return {};
}

Status Uploader::put_rows(std::initializer_list<TensorRole> roles, int layer, const Matrix& matrix,
                          DType dtype) {
  std::byte* to = matrix.data;
  for (const TensorRole role : roles) {
    const TensorEntry& entry = reader_.map.at(role, layer);
    SWITCHYARD_TRY(put(entry, dtype, to));  // and gives its pages back
    to += entry.shape.elements() * dtype_bytes(dtype);
  }
  return {};
}

Status Uploader::put_vector(TensorRole role, int layer, float* to, float scale) {
  SWITCHYARD_ASSIGN(std::vector<float> values, read_vector(reader_, reader_.map.at(role, layer)));
  for (float& value : values) value *= scale;
  stream_.copy_in(to, values.data(), std::ssize(values) * 4);
  return stream_.synchronize("copy weights");
}

Status Uploader::put_pair(const TensorEntry& gate, const TensorEntry& up, const Matrix& matrix) {
  SWITCHYARD_TRY(put(gate, weights_.dtype, matrix.data));
  return put(up, weights_.dtype,
             matrix.data + matrix.n / 2 * matrix.k * dtype_bytes(weights_.dtype));
}

Status Uploader::put_attention(int layer) {
  const attention::GqaSpec& spec = config_.blocks[layer].attention;
  const BlockWeights& block = weights_.blocks[layer];
  SWITCHYARD_TRY(
      put_rows({TensorRole::q, TensorRole::k, TensorRole::v}, layer, block.qkv, weights_.dtype));
  SWITCHYARD_TRY(put_rows({TensorRole::o}, layer, block.output, weights_.dtype));
  if (spec.qkv_bias) {
    const int64_t q = int64_t{spec.heads} * spec.head_dim,
                  kv = int64_t{spec.kv_heads} * spec.head_dim;
    SWITCHYARD_TRY(put_vector(TensorRole::q_bias, layer, block.qkv.bias));
    SWITCHYARD_TRY(put_vector(TensorRole::k_bias, layer, block.qkv.bias + q));
    SWITCHYARD_TRY(put_vector(TensorRole::v_bias, layer, block.qkv.bias + q + kv));
  }
  if (spec.output_bias) {  // is added to the residual stream with its scale
    SWITCHYARD_TRY(
        put_vector(TensorRole::o_bias, layer, block.output.bias, config_.residual_scale));
  }
  if (spec.qk_norm == QkNorm::none) return {};
  SWITCHYARD_TRY(put_vector(TensorRole::q_norm, layer, block.q_norm));
  return put_vector(TensorRole::k_norm, layer, block.k_norm);
}

Status Uploader::put_dense(int layer) {
  const BlockWeights& block = weights_.blocks[layer];
  SWITCHYARD_TRY(put_pair(reader_.map.at(TensorRole::dense_gate, layer),
                          reader_.map.at(TensorRole::dense_up, layer), block.gate_up));
  return put_rows({TensorRole::dense_down}, layer, block.down, weights_.dtype);
}

Status Uploader::put_shared(int layer) {
  const BlockWeights& block = weights_.blocks[layer];
  if (const auto* fused = reader_.map.find(TensorRole::shared_gate_up, layer); fused != nullptr) {
    SWITCHYARD_TRY(put(*fused, weights_.dtype, block.gate_up.data));
  } else {
    SWITCHYARD_TRY(put_pair(reader_.map.at(TensorRole::shared_gate, layer),
                            reader_.map.at(TensorRole::shared_up, layer), block.gate_up));
  }
  SWITCHYARD_TRY(put_rows({TensorRole::shared_down}, layer, block.down, weights_.dtype));
  if (block.shared_gate.data == nullptr) return {};
  return put_rows({TensorRole::shared_router}, layer, block.shared_gate, DType::f32);
}

// The parts of one expert, to `gate`, `up` and `down`, from either kind of checkpoint.
Status Uploader::put_expert(int layer, int expert) {
  const BlockSpec& spec = config_.blocks[layer];
  const BlockWeights& block = weights_.blocks[layer];
  const int64_t part = int64_t{spec.ffn_width} * config_.width, each = dtype_bytes(weights_.dtype);
  const bool packed = weights_.layout[layer] == ExpertLayout::packed;
  std::byte* gate = packed ? unpacked_.data() : block.experts_gate_up + expert * 2 * part * each;
  std::byte* down = packed ? gate + 2 * part * each : block.experts_down + expert * part * each;
  const TensorMap& map = reader_.map;
  if (const auto* fused = map.find(TensorRole::experts_gate_up, layer); fused != nullptr) {
    SWITCHYARD_TRY(put(*fused, expert * 2 * part, 2 * part, weights_.dtype, gate));
  } else {
    SWITCHYARD_TRY(put(map.at(TensorRole::expert_gate, layer, expert), weights_.dtype, gate));
    SWITCHYARD_TRY(
        put(map.at(TensorRole::expert_up, layer, expert), weights_.dtype, gate + part * each));
  }
  if (const auto* fused = map.find(TensorRole::experts_down, layer); fused != nullptr) {
    return put(*fused, expert * part, part, weights_.dtype, down);
  }
  return put(map.at(TensorRole::expert_down, layer, expert), weights_.dtype, down);
}

Status Uploader::pack_expert(int layer, int expert) {
  const BlockWeights& block = weights_.blocks[layer];
  const int64_t width = config_.width, ffn = config_.blocks[layer].ffn_width;
  const std::byte* gate = unpacked_.data();
  const std::byte* up = gate + width * ffn * 2;
  const std::byte* down = up + width * ffn * 2;
  moe_pack_w13_on_device(gate, up, width, ffn,
                         block.experts_gate_up + expert * MoePack::w13_bytes(width, ffn),
                         stream_.handle());
  moe_pack_w2_on_device(down, width, ffn,
                        block.experts_down + expert * MoePack::w2_bytes(width, ffn),
                        stream_.handle());
  return {};
}

Status Uploader::put_experts(int layer) {
  const BlockSpec& spec = config_.blocks[layer];
  const bool packed = weights_.layout[layer] == ExpertLayout::packed;
  const int64_t scratch = 3 * int64_t{spec.ffn_width} * config_.width * 2;
  if (packed && unpacked_.size() < scratch) {
    SWITCHYARD_ASSIGN(unpacked_, CudaMemory::allocate(scratch, "one unpacked expert"));
  }
  for (int e = 0; e < spec.router->num_experts; ++e) {
    SWITCHYARD_TRY(put_expert(layer, e));
    if (packed) SWITCHYARD_TRY(pack_expert(layer, e));
  }
  for (const TensorRole role : {TensorRole::experts_gate_up, TensorRole::experts_down}) {
    if (const auto* fused = reader_.map.find(role, layer); fused != nullptr) done_with(*fused);
  }
  return put_rows({TensorRole::router}, layer, weights_.blocks[layer].gate, DType::f32);
}

Status Uploader::run() {
  SWITCHYARD_ASSIGN(staging_, PinnedMemory::allocate(kStagingBytes, "loading weights"));
  for (int l = 0; l < std::ssize(config_.blocks); ++l) {
    const BlockSpec& spec = config_.blocks[l];
    const BlockWeights& block = weights_.blocks[l];
    SWITCHYARD_TRY(put_vector(TensorRole::attention_norm, l, block.attention_norm));
    SWITCHYARD_TRY(put_vector(TensorRole::ffn_norm, l, block.ffn_norm));
    SWITCHYARD_TRY(put_attention(l));
    if (!spec.router) {
      SWITCHYARD_TRY(put_dense(l));
      continue;
    }
    SWITCHYARD_TRY(put_experts(l));
    if (spec.shared.width > 0) SWITCHYARD_TRY(put_shared(l));
  }
  SWITCHYARD_TRY(put_vector(TensorRole::final_norm, -1, weights_.final_norm));
  SWITCHYARD_TRY(
      put(reader_.map.at(TensorRole::embedding), weights_.dtype, weights_.embedding.data));
  if (config_.tied_embedding) return {};
  return put(reader_.map.at(TensorRole::lm_head), weights_.dtype, weights_.lm_head.data);
}

}  // namespace

Status upload_weights(const WeightReader& reader, const ModelConfig& config, Weights& weights,
                      CudaStream& stream) {
  Uploader uploader(reader, config, weights, stream);
  SWITCHYARD_TRY(uploader.run());
  SWITCHYARD_TRY(stream.synchronize("pack weights"));
  SWITCHYARD_TRY(place_experts(config, weights, stream));
  return split_gates(weights, stream);
}

}  // namespace switchyard::model::cuda
