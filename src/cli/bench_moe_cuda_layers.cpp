// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_cuda_layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "cli/terminal.h"
#include "kernels/cuda/moe_baseline.h"
#include "kernels/select.h"

namespace switchyard::cli {
namespace {

namespace k = switchyard::cuda;

// Hands out pieces of memory from `base` on; from null it only counts.
class Places {
 public:
  explicit Places(std::byte* base) : base_(base) {}
  template <class T>
  void take(T*& to, int64_t count) {
    to = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 1023) / 1024 * 1024;
  }
  void align(int64_t bytes) { used_ = (used_ + bytes - 1) / bytes * bytes; }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Rows of a draw in the order of slots, then tokens; slot s begins at row begin[s].
struct HostRows {
  std::vector<int32_t> pick_row, row_token, begin;
  std::vector<float> row_weight;
};

// pitch: rows of every slot; 0: as many as it has.
HostRows order_rows(const Routing& routing, int num_slots, int64_t pitch) {
  const int64_t picks = routing.expert.shape.elements(), top_k = routing.expert.shape[1];
  const auto* expert = routing.expert.as<int32_t>();
  const auto* weight = routing.weight.as<float>();
  const auto* load = routing.load.as<int32_t>();
  HostRows rows;
  rows.begin.assign(static_cast<size_t>(num_slots) + 1, 0);
  for (int s = 0; s < num_slots; ++s) {
    const auto count = pitch > 0 ? static_cast<int32_t>(pitch) : load[s];
    rows.begin[static_cast<size_t>(s) + 1] = rows.begin[static_cast<size_t>(s)] + count;
  }
  const auto total = static_cast<size_t>(rows.begin.back());
  rows.row_token.assign(total, 0);  // padding reads token 0
  rows.row_weight.assign(total, 0);
  rows.pick_row.assign(static_cast<size_t>(picks), -1);
  std::vector<int32_t> next = rows.begin;
  for (int64_t i = 0; i < picks; ++i) {
    if (expert[i] < 0) continue;
    const int32_t row = next[static_cast<size_t>(expert[i])]++;
    rows.pick_row[static_cast<size_t>(i)] = row;
    rows.row_token[static_cast<size_t>(row)] = static_cast<int32_t>(i / top_k);
    rows.row_weight[static_cast<size_t>(row)] = weight[i];
  }
  return rows;
}

struct Part {
  void* to;
  const void* from;
  int64_t bytes;
};
template <class T>
Part part(T* to, const std::vector<T>& from) {
  return {to, from.data(), std::ssize(from) * static_cast<int64_t>(sizeof(T))};
}

}  // namespace

Result<MoeDeviceDraw> MoeDeviceDraw::upload(const MoeDraw& draw, int num_slots,
                                            CudaStream& stream) {
  const Routing routing = draw.routing();
  const int64_t picks = routing.expert.shape.elements();
  const HostRows dense = order_rows(routing, num_slots, 0);
  const HostRows padded = order_rows(routing, num_slots, draw.capacity());
  std::vector<int32_t> all_slots(static_cast<size_t>(num_slots));
  for (int s = 0; s < num_slots; ++s) all_slots[static_cast<size_t>(s)] = s;
  const std::vector<int32_t> num_hit{num_slots};
  MoeDeviceDraw to;
  to.tokens = routing.expert.shape[0];
  to.padded_rows = std::ssize(padded.row_token);
  to.row_from = dense.begin;
  for (const bool count : {true, false}) {
    Places places(count ? nullptr : to.memory.data());
    places.take(to.expert, picks);
    places.take(to.weight, picks);
    places.take(to.row_token, std::ssize(dense.row_token));
    places.take(to.row_weight, std::ssize(dense.row_weight));
    places.take(to.padded.pick_row, picks);
    places.take(to.padded.row_token, to.padded_rows);
    places.take(to.padded.slot_offset, num_slots + 1);
    places.take(to.padded.hit, num_slots);
    places.take(to.padded.num_hit, 1);
    if (count) {
      SWITCHYARD_ASSIGN(to.memory, CudaMemory::allocate(places.used(), "a drawn routing"));
    }
  }
  to.padded.expert = to.expert;
  to.padded.weight = to.weight;
  for (const Part& each :
       {Part{to.expert, routing.expert.data, picks * 4},
        Part{to.weight, routing.weight.data, picks * 4}, part(to.row_token, dense.row_token),
        part(to.row_weight, dense.row_weight), part(to.padded.pick_row, padded.pick_row),
        part(to.padded.row_token, padded.row_token), part(to.padded.slot_offset, padded.begin),
        part(to.padded.hit, all_slots), part(to.padded.num_hit, num_hit)}) {
    stream.copy_in(each.to, each.from, each.bytes);
  }
  SWITCHYARD_TRY(stream.synchronize("copy a routing"));
  return to;
}

Result<MoeDeviceLayers> MoeDeviceLayers::create(const MoeShape& shape,
                                                const MoeBenchOptions& options, int layers,
                                                int64_t max_rows, const DeviceFacts& facts,
                                                CudaStream& stream) {
  MoeDeviceLayers made;
  made.shape_ = shape;
  made.layers_ = layers;
  made.capability_ = facts.compute_major * 10 + facts.compute_minor;
  made.naive_ = options.runs(moe::Execution::naive);
  made.problem_.rule.experts = shape.num_slots();
  made.problem_.rule.top_k = shape.top_k;
  made.problem_.width = shape.width;
  made.problem_.ffn_width = shape.ffn_width;
  made.problem_.max_tokens = options.most_tokens();
  made.problem_.deterministic = deterministic();
  made.padded_ = made.problem_;
  made.padded_.max_tokens =
      std::max(made.problem_.max_tokens, (max_rows + shape.top_k - 1) / shape.top_k);
  SWITCHYARD_TRY(made.check(options));
  SWITCHYARD_TRY(made.allocate(options, max_rows, stream));
  made.fill(stream);
  if (made.naive_) {
    std::string note;
    made.products_ = k::DenseProducts::open(false, note);
    if (!note.empty()) log(LogLevel::warning, "the naive way will be slow: {}", note);
  }
  SWITCHYARD_TRY(stream.synchronize("make a layer"));
  return made;
}

Status MoeDeviceLayers::check(const MoeBenchOptions& options) {
  if (options.dtype != DType::bf16) {
    return fail(Code::unsupported,
                "bench moe on a CUDA device measures bf16 weights: --dtype bf16");
  }
  if (shape_.top_k > shape_.num_slots()) {
    return fail(Code::unsupported, "shape {}: {} picks of {} experts on a rank", shape_.name,
                shape_.top_k, shape_.num_slots());
  }
  SWITCHYARD_ASSIGN(pinned_, kernels::pinned_moe_ffn(problem_, capability_));
  if (pinned_ != nullptr && !pinned_->routes) {
    many_ = pinned_;
    return {};
  }
  const char* why = "built for other devices";
  for (const MoeFfn::Kernel& kernel : moe_ffn_kernels()) {
    if (capability_ < kernel.sm_min || capability_ > kernel.sm_max || kernel.routes) continue;
    why = kernel.refusal(padded_);
    if (why != nullptr) continue;
    many_ = &kernel;
    return {};
  }
  return fail(Code::unsupported, "shape {}: no kernel of this device takes it: {}", shape_.name,
              why);
}

Status MoeDeviceLayers::allocate(const MoeBenchOptions& options, int64_t max_rows,
                                 CudaStream& stream) {
  const int64_t slots = shape_.num_slots(), width = shape_.width, ffn = shape_.ffn_width;
  const int64_t tokens = options.most_tokens(), picks = tokens * shape_.top_k;
  const int64_t rows = k::padded_tokens(tokens);  // of one expert in the naive way
  const int64_t workspace = std::max(moe_layer_workspace(problem_, capability_),
                                     moe_layer_workspace(padded_, capability_));
  for (const bool count : {true, false}) {
    Places places(count ? nullptr : memory_.data());
    for (auto* each : {&w13_, &w2_, &gate_up_, &down_}) each->assign(layers_, nullptr);
    for (size_t l = 0; l < w13_.size(); ++l) {
      places.align(MoePack::kPlacedAlignment);
      places.take(w13_[l], slots * MoePack::w13_bytes(width, ffn));
      places.align(MoePack::kPlacedAlignment);
      places.take(w2_[l], slots * MoePack::w2_bytes(width, ffn));
      if (naive_) places.take(gate_up_[l], slots * 4 * ffn * width);
      if (naive_) places.take(down_[l], slots * 2 * ffn * width);
    }
    places.take(x_, 2 * tokens * width);
    places.take(y_, tokens * width);
    places.take(workspace_, workspace);
    places.take(sync_, MoeFfn::kSyncWords);
    places.take(logits_, tokens * slots);
    places.take(router_expert_, picks);
    places.take(router_weight_, picks);
    places.take(routing_.pick_row, picks);
    places.take(routing_.row_token, std::max(picks, max_rows));
    places.take(routing_.slot_offset, slots + 1);
    places.take(routing_.hit, slots);
    places.take(routing_.num_hit, 1);
    places.take(routing_.unusable, 1);
    if (naive_) {
      places.take(rows_, 2 * rows * width);
      places.take(wide_, 2 * rows * ffn);
      places.take(hidden_, 2 * rows * ffn);
      places.take(out_, rows * width);
    }
    if (!count) break;
    Result<L2Memory> memory = MoePack::gains_from_sides(width, ffn)
                                  ? L2Memory::allocate(places.used(), "the layers", stream)
                                  : L2Memory::allocate_plain(places.used(), "the layers");
    if (!memory.ok()) {
      return fail(Code::out_of_memory,
                  "shape {} needs {} on the device for {} layers{}: {}; lower "
                  "--layers or --tokens, or choose fewer kernels or a smaller shape",
                  shape_.name, size_text(places.used()), layers_,
                  naive_ ? ", twice because of naive" : "", memory.error().message);
    }
    memory_ = *std::move(memory);
  }
  return {};
}

void MoeDeviceLayers::fill(CudaStream& stream) {
  const int64_t slots = shape_.num_slots(), width = shape_.width, ffn = shape_.ffn_width;
  uint64_t seed = 0;
  const auto fill = [&](std::byte* to, int64_t bytes, int64_t fan_in) {
    const auto bound = static_cast<float>(std::sqrt(3.0 / static_cast<double>(fan_in)));
    k::fill_random(to, DType::bf16, bytes / 2, bound, ++seed, stream.handle());
  };
  // Random in any order, so blocks that are placed by sides need no exchange.
  for (size_t l = 0; l < w13_.size(); ++l) {
    fill(w13_[l], slots * MoePack::w13_bytes(width, ffn), width);
    fill(w2_[l], slots * MoePack::w2_bytes(width, ffn), ffn);
    if (naive_) fill(gate_up_[l], slots * 4 * ffn * width, width);
    if (naive_) fill(down_[l], slots * 2 * ffn * width, ffn);
  }
  const int64_t tokens = problem_.max_tokens;
  fill(x_, 2 * tokens * width, 1);
  k::fill_random(logits_, DType::f32, tokens * slots, 2, ++seed, stream.handle());
  stream.fill(y_, 0, tokens * width * 4);
  stream.fill(sync_, 0, MoeFfn::kSyncWords * 4);
  stream.fill(routing_.unusable, 0, 4);
}

const MoeFfn::Kernel& MoeDeviceLayers::kernel_for(moe::Execution execution, int64_t tokens,
                                                  bool split) const {
  if (execution != moe::Execution::grouped || split) return *many_;
  if (pinned_ != nullptr) return *pinned_;
  return *choose_moe_ffn(problem_, capability_, tokens);
}

MoeFfn::Args MoeDeviceLayers::args_of(int layer, const MoeDeviceDraw& draw) const {
  const auto at = static_cast<size_t>(layer);
  MoeFfn::Args args{.x = x_,
                    .tokens = draw.tokens,
                    .routing = routing_,
                    .w13 = w13_[at],
                    .w2 = w2_[at],
                    .sides = memory_.sides(),
                    .y = y_,
                    .sync = sync_,
                    .workspace = workspace_};
  args.routing.expert = draw.expert;
  args.routing.weight = draw.weight;
  return args;
}

void MoeDeviceLayers::queue(moe::Execution execution, const MoeDeviceDraw& draw, int layer,
                            const MoeParts& parts, CudaStream& stream) {
  if (execution == moe::Execution::naive) {
    queue_naive(draw, layer, parts, stream.handle());
    return;
  }
  MoeFfn::Args args = args_of(layer, draw);
  args.stop = parts.stop;
  const MoeFfn::Kernel& kernel = kernel_for(execution, draw.tokens, parts.split);
  if (execution == moe::Execution::grouped && parts.up) {
    run_moe_layer(kernel, problem_, args, stream.handle());
    return;
  }
  // The order of rows costs as much when some of them are padding.
  if (parts.plan) {
    MoeRoute::run({problem_.rule, problem_.max_tokens},
                  {.tokens = draw.tokens, .routing = args.routing, .workspace = args.workspace},
                  stream.handle());
  }
  if (!parts.up) return;
  args.routing = draw.padded;
  args.rows = draw.padded_rows;
  kernel.run(padded_, args, stream.handle());
}

void MoeDeviceLayers::queue_router(int64_t tokens, CudaStream& stream) {
  DeviceRouting routing = routing_;
  routing.expert = router_expert_;
  routing.weight = router_weight_;
  MoeRoute::run({problem_.rule, problem_.max_tokens},
                {.logits = logits_, .tokens = tokens, .routing = routing, .workspace = workspace_},
                stream.handle());
}

void MoeDeviceLayers::queue_naive(const MoeDeviceDraw& draw, int layer, const MoeParts& parts,
                                  CudaStreamHandle stream) {
  const auto at = static_cast<size_t>(layer);
  const int64_t width = shape_.width, ffn = shape_.ffn_width;
  for (int s = 0; s < shape_.num_slots(); ++s) {
    const int32_t first = draw.row_from[static_cast<size_t>(s)];
    const int64_t rows = draw.row_from[static_cast<size_t>(s) + 1] - first;
    if (rows == 0) continue;
    const int32_t* const tokens = draw.row_token + first;
    if (parts.gather) k::gather_rows({x_, tokens, rows, width, rows_}, stream);
    if (parts.up) {
      products_.run({.x = rows_,
                     .weight = gate_up_[at] + s * 4 * ffn * width,
                     .tokens = rows,
                     .n = 2 * ffn,
                     .k = width,
                     .y = wide_},
                    stream);
    }
    if (parts.activation) {
      k::swiglu({.gate_up = wide_, .tokens = rows, .ffn_width = ffn, .h = hidden_}, stream);
    }
    if (parts.down) {
      products_.run({.x = hidden_,
                     .weight = down_[at] + s * 2 * ffn * width,
                     .tokens = rows,
                     .n = width,
                     .k = ffn,
                     .y = out_},
                    stream);
    }
    if (parts.add) k::add_rows({out_, tokens, draw.row_weight + first, rows, width, y_}, stream);
  }
}

}  // namespace switchyard::cli
