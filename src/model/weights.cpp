// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <cmath>
#include <cstring>

#include "tensor/convert.h"

namespace switchyard::model {
namespace {

using checkpoint::TensorEntry;

bool aligned(const TensorEntry& entry) {
  return reinterpret_cast<uintptr_t>(entry.data) % static_cast<size_t>(dtype_bytes(entry.dtype)) ==
         0;
}

// Elements of a tensor, copied only when the file put them at an odd address.
class Elements {
 public:
  explicit Elements(const TensorEntry& entry) : at_(entry.data) {
    if (aligned(entry)) return;
    copy_.resize((entry.bytes() + sizeof(float) - 1) / sizeof(float));
    std::memcpy(copy_.data(), entry.data, entry.bytes());
    at_ = reinterpret_cast<const std::byte*>(copy_.data());
  }
  /// A dense [rows, columns] view that starts at element `first`.
  TensorView matrix(const TensorEntry& entry, int64_t first, int64_t rows, int64_t columns) const {
    auto* data = const_cast<std::byte*>(at_) + first * dtype_bytes(entry.dtype);
    return {data, Shape{rows, columns}, entry.dtype};
  }

 private:
  const std::byte* at_;
  std::vector<float> copy_;
};

void done_with(const WeightReader& reader, const TensorEntry& entry) {
  reader.source.drop(entry);
  if (reader.on_bytes) reader.on_bytes(entry.bytes());
}

// gate and up of one expert, as rows of a [2 F, D] part that starts at element `first`.
void pack_fused_pair(const TensorEntry& entry, int64_t first, int64_t ffn, int64_t width,
                     Linear& gate_up, int slot) {
  const Elements elements(entry);
  const TensorView gate = elements.matrix(entry, first, ffn, width);
  const TensorView up = elements.matrix(entry, first + ffn * width, ffn, width);
  gate_up.pack(slot, gate, &up);
}

void pack_pair(const TensorEntry& gate, const TensorEntry& up, Linear& gate_up, int slot) {
  const Elements gate_elements(gate), up_elements(up);
  const TensorView up_view = up_elements.matrix(up, 0, up.shape[0], up.shape[1]);
  gate_up.pack(slot, gate_elements.matrix(gate, 0, gate.shape[0], gate.shape[1]), &up_view);
}

void pack_one(const TensorEntry& entry, int64_t first, int64_t rows, int64_t columns,
              Linear& linear, int slot) {
  const Elements elements(entry);
  linear.pack(slot, elements.matrix(entry, first, rows, columns));
}

void fill_gate_up(const WeightReader& reader, const BlockSpec& spec, int64_t width, int layer,
                  Linear& gate_up) {
  const int64_t ffn = spec.ffn_width;
  const TensorEntry* fused = reader.map.find(TensorRole::experts_gate_up, layer);
  reader.pool.for_each(spec.router->num_experts, [&](int64_t e, int) {
    const int slot = static_cast<int>(e);
    if (fused != nullptr) {
      pack_fused_pair(*fused, e * 2 * ffn * width, ffn, width, gate_up, slot);
    } else {
      pack_pair(reader.map.at(TensorRole::expert_gate, layer, slot),
                reader.map.at(TensorRole::expert_up, layer, slot), gate_up, slot);
    }
  });
  if (fused != nullptr) return done_with(reader, *fused);
  for (int e = 0; e < spec.router->num_experts; ++e) {
    done_with(reader, reader.map.at(TensorRole::expert_gate, layer, e));
    done_with(reader, reader.map.at(TensorRole::expert_up, layer, e));
  }
}

void fill_down(const WeightReader& reader, const BlockSpec& spec, int64_t width, int layer,
               Linear& down) {
  const int64_t ffn = spec.ffn_width;
  const TensorEntry* fused = reader.map.find(TensorRole::experts_down, layer);
  reader.pool.for_each(spec.router->num_experts, [&](int64_t e, int) {
    const int slot = static_cast<int>(e);
    const TensorEntry& entry =
        fused != nullptr ? *fused : reader.map.at(TensorRole::expert_down, layer, slot);
    pack_one(entry, fused != nullptr ? e * width * ffn : 0, width, ffn, down, slot);
  });
  if (fused != nullptr) return done_with(reader, *fused);
  for (int e = 0; e < spec.router->num_experts; ++e) {
    done_with(reader, reader.map.at(TensorRole::expert_down, layer, e));
  }
}

Status fill_shared(const WeightReader& reader, const BlockSpec& spec, int64_t width, int layer,
                   moe::Layer& moe) {
  moe::Experts& shared = *moe.shared();
  if (const auto* fused = reader.map.find(TensorRole::shared_gate_up, layer); fused != nullptr) {
    pack_fused_pair(*fused, 0, spec.shared.width, width, shared.gate_up(), 0);
    done_with(reader, *fused);
  } else {
    const TensorEntry& gate = reader.map.at(TensorRole::shared_gate, layer);
    const TensorEntry& up = reader.map.at(TensorRole::shared_up, layer);
    pack_pair(gate, up, shared.gate_up(), 0);
    done_with(reader, gate);
    done_with(reader, up);
  }
  SWITCHYARD_TRY(
      pack_rows(reader, shared.down(), {&reader.map.at(TensorRole::shared_down, layer)}));
  if (moe.shared_gate() == nullptr) return {};
  return pack_rows(reader, *moe.shared_gate(), {&reader.map.at(TensorRole::shared_router, layer)});
}

Status fill_moe(const WeightReader& reader, const BlockSpec& spec, int64_t width, int layer,
                moe::Layer& moe) {
  SWITCHYARD_TRY(
      pack_rows(reader, moe.router().gate(), {&reader.map.at(TensorRole::router, layer)}));
  fill_gate_up(reader, spec, width, layer, moe.experts().gate_up());
  fill_down(reader, spec, width, layer, moe.experts().down());
  if (moe.shared() == nullptr) return {};
  return fill_shared(reader, spec, width, layer, moe);
}

Status fill_dense(const WeightReader& reader, int layer, moe::Experts& dense) {
  const TensorEntry& gate = reader.map.at(TensorRole::dense_gate, layer);
  const TensorEntry& up = reader.map.at(TensorRole::dense_up, layer);
  pack_pair(gate, up, dense.gate_up(), 0);
  done_with(reader, gate);
  done_with(reader, up);
  return pack_rows(reader, dense.down(), {&reader.map.at(TensorRole::dense_down, layer)});
}

// Biases of q, k, v as one vector.
Status fill_qkv_bias(const WeightReader& reader, int layer, attention::Gqa& gqa) {
  std::vector<float> bias;
  for (const TensorRole role : {TensorRole::q_bias, TensorRole::k_bias, TensorRole::v_bias}) {
    SWITCHYARD_ASSIGN(const std::vector<float> part,
                      read_vector(reader, reader.map.at(role, layer)));
    bias.insert(bias.end(), part.begin(), part.end());
  }
  gqa.qkv().set_bias(std::move(bias));
  return {};
}

Status fill_attention(const WeightReader& reader, const attention::GqaSpec& spec, int layer,
                      attention::Gqa& gqa) {
  const TensorMap& map = reader.map;
  SWITCHYARD_TRY(pack_rows(reader, gqa.qkv(),
                           {&map.at(TensorRole::q, layer), &map.at(TensorRole::k, layer),
                            &map.at(TensorRole::v, layer)}));
  SWITCHYARD_TRY(pack_rows(reader, gqa.output(), {&map.at(TensorRole::o, layer)}));
  if (spec.qkv_bias) SWITCHYARD_TRY(fill_qkv_bias(reader, layer, gqa));
  if (spec.output_bias) {
    SWITCHYARD_ASSIGN(std::vector<float> bias,
                      read_vector(reader, map.at(TensorRole::o_bias, layer)));
    gqa.output().set_bias(std::move(bias));
  }
  if (spec.qk_norm == QkNorm::none) return {};
  SWITCHYARD_ASSIGN(std::vector<float> q, read_vector(reader, map.at(TensorRole::q_norm, layer)));
  SWITCHYARD_ASSIGN(std::vector<float> k, read_vector(reader, map.at(TensorRole::k_norm, layer)));
  gqa.set_norms(std::move(q), std::move(k));
  return {};
}

}  // namespace

Result<std::vector<float>> read_vector(const WeightReader& reader, const TensorEntry& entry) {
  const int64_t count = entry.shape.elements();
  std::vector<float> values(count);
  const Elements elements(entry);
  convert_to_f32(elements.matrix(entry, 0, 1, count).data, entry.dtype, count, values.data());
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    return fail(Code::bad_file, "{}: {}: element {} is {}: the file is damaged",
                reader.source.file_of(entry), entry.name, i, values[i]);
  }
  if (reader.on_bytes) reader.on_bytes(entry.bytes());
  return values;
}

Status pack_rows(const WeightReader& reader, Linear& linear,
                 std::initializer_list<const TensorEntry*> parts) {
  const TensorEntry& first = **parts.begin();
  if (parts.size() == 1) {
    pack_one(first, 0, first.shape[0], first.shape[1], linear, 0);
    done_with(reader, first);
    return {};
  }
  // Parts may end inside a panel, so they are laid below each other first; f32 holds every plain
  // dtype exactly.
  int64_t rows = 0;
  const int64_t columns = first.shape[1];
  for (const TensorEntry* part : parts) rows += part->shape[0];
  SWITCHYARD_ASSIGN(const Storage whole, Storage::allocate(rows * columns * 4));
  auto* to = reinterpret_cast<float*>(whole.data());
  for (const TensorEntry* part : parts) {
    const int64_t count = part->shape.elements();
    const Elements elements(*part);
    convert_to_f32(elements.matrix(*part, 0, 1, count).data, part->dtype, count, to);
    to += count;
    done_with(reader, *part);
  }
  linear.pack(0, TensorView(whole.data(), Shape{rows, columns}, DType::f32));
  return {};
}

Status fill_block(const WeightReader& reader, const ModelConfig& config, int layer, Block& block) {
  const BlockSpec& spec = config.blocks[layer];
  SWITCHYARD_ASSIGN(std::vector<float> attention_norm,
                    read_vector(reader, reader.map.at(TensorRole::attention_norm, layer)));
  SWITCHYARD_ASSIGN(std::vector<float> ffn_norm,
                    read_vector(reader, reader.map.at(TensorRole::ffn_norm, layer)));
  block.set_norms(std::move(attention_norm), std::move(ffn_norm));
  SWITCHYARD_TRY(fill_attention(reader, spec.attention, layer, block.attention()));
  if (block.moe() != nullptr) {
    return fill_moe(reader, spec, config.width, layer, *block.moe());
  }
  return fill_dense(reader, layer, *block.dense());
}

}  // namespace switchyard::model
