// SPDX-License-Identifier: Apache-2.0
// Copies of one MoE layer on a device, with weights of their own, and the three ways to run a drawn routing through one.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cli/bench_moe_measure.h"
#include "device/cuda.h"
#include "device/device.h"
#include "kernels/cuda/dense_products.h"
#include "kernels/cuda/l2_memory.h"
#include "kernels/ops/moe_ffn.h"

namespace switchyard::cli {

/// A draw on the device: picks, and rows in an order that the host made.
struct MoeDeviceDraw {
  int64_t tokens = 0;
  CudaMemory memory;
  int32_t* expert = nullptr;      ///< [T, K]
  float* weight = nullptr;        ///< [T, K]
  DeviceRouting padded;           ///< C rows for every expert
  int64_t padded_rows = 0;        ///< S C
  int32_t* row_token = nullptr;   ///< [R] dense
  float* row_weight = nullptr;    ///< [R]
  std::vector<int32_t> row_from;  ///< [S + 1], on the host

  static Result<MoeDeviceDraw> upload(const MoeDraw& draw, int num_slots, CudaStream& stream);
};

/// What a pass runs: all of it, or for a measurement less.
struct MoeParts {
  bool plan = true;  ///< the order of rows; of naive: gather
  MoeFfn::Stop stop = MoeFfn::Stop::never;
  bool gather = true, up = true, activation = true, down = true, add = true;  ///< of naive
  bool split = false;  ///< the entry whose parts can be told apart
};

class MoeDeviceLayers {
 public:
  /// `max_rows`: most rows of one step, padding included. Errors: unsupported with the kernels' reason, out_of_memory.
  static Result<MoeDeviceLayers> create(const MoeShape& shape, const MoeBenchOptions& options,
                                        int layers, int64_t max_rows, const DeviceFacts& facts,
                                        CudaStream& stream);

  void queue(moe::Execution execution, const MoeDeviceDraw& draw, int layer, const MoeParts& parts,
             CudaStream& stream);
  /// Routing from logits, for its phase.
  void queue_router(int64_t tokens, CudaStream& stream);
  const MoeFfn::Kernel& kernel_for(moe::Execution execution, int64_t tokens, bool split) const;
  int count() const noexcept { return layers_; }

 private:
  Status check(const MoeBenchOptions& options);
  Status allocate(const MoeBenchOptions& options, int64_t max_rows, CudaStream& stream);
  void fill(CudaStream& stream);
  MoeFfn::Args args_of(int layer, const MoeDeviceDraw& draw) const;
  void queue_naive(const MoeDeviceDraw& draw, int layer, const MoeParts& parts,
                   CudaStreamHandle stream);

  MoeShape shape_;
  int layers_ = 0, capability_ = 0;
  bool naive_ = false;
  MoeFfn::Problem problem_, padded_;
  const MoeFfn::Kernel* many_ = nullptr;    // routes apart from the products
  const MoeFfn::Kernel* pinned_ = nullptr;  // by SWITCHYARD_KERNEL, or null
  cuda::DenseProducts products_;
  L2Memory memory_;
  std::vector<std::byte*> w13_, w2_;        // packed, of each layer
  std::vector<std::byte*> gate_up_, down_;  // [S, 2 F, D], [S, D, F] of each layer, for naive
  std::byte *x_ = nullptr, *rows_ = nullptr, *hidden_ = nullptr, *workspace_ = nullptr;
  float *y_ = nullptr, *wide_ = nullptr, *out_ = nullptr, *logits_ = nullptr;
  uint32_t* sync_ = nullptr;
  int32_t* router_expert_ = nullptr;
  float* router_weight_ = nullptr;
  DeviceRouting routing_;  // rows of the picks in hand
};

}  // namespace switchyard::cli
