// SPDX-License-Identifier: Apache-2.0
// A step's integers on the device: packed into pinned memory, one copy for the rows and one for the block tables.
#pragma once
#include <cstdint>

#include "attention/rope.h"
#include "base/result.h"
#include "device/cuda.h"
#include "model/model.h"

namespace switchyard::model::cuda {

/// How large a step is: what fixes every address and every grid of it.
struct StepShape {
  int64_t tokens = 0;      ///< T
  int sequences = 0;       ///< B
  int64_t logit_rows = 0;  ///< N
};

/// Pointers into device memory; the same for every step of a shape.
struct StepPointers {
  const int32_t* token = nullptr;        ///< [T]
  const int32_t* rope_row = nullptr;     ///< [T]
  const int32_t* slot = nullptr;         ///< [T]
  const int32_t* logit_row = nullptr;    ///< [N]
  const int32_t* seq_offset = nullptr;   ///< [B + 1]
  const int32_t* context_len = nullptr;  ///< [B]
  const int32_t* block_table = nullptr;  ///< [B, max_blocks]
  const float* cos = nullptr;            ///< [rows, r/2]
  const float* sin = nullptr;
  int max_blocks = 0;
};

class StepArrays {
 public:
  /// `positions` is the longest sequence's. Rotations of all positions are computed once, except with dynamic scaling,
  /// where they depend on the step.
  static Result<StepArrays> create(const LoadOptions& options, const ModelConfig& config,
                                   const Stream& stream, CudaStream& device);

  /// Queues the step's arrays. With padding, the shape has more sequences than the input: those repeat the first one, and
  /// write their keys and values to a block that nobody reads (number num_kv_blocks).
  void send(const model::StepInput& input, const StepShape& shape, const Stream& stream,
            CudaStream& device);
  StepPointers pointers(const StepShape& shape) const noexcept;

 private:
  void pack(const model::StepInput& input, const StepShape& shape);
  void send_tables(const model::StepInput& input, const StepShape& shape, CudaStream& device);
  void send_rotations(const model::StepInput& input, const Stream& stream, CudaStream& device);
  bool dynamic() const noexcept { return scaling_ == attention::RopeSpec::Scaling::dynamic; }

  int block_tokens_ = 16, max_blocks_ = 0;
  int sent_sequences_ = 0, sent_blocks_ = 0;  // of the tables that the device has
  int64_t dump_block_ = 0, pairs_ = 0, rope_rows_ = 0;
  attention::RopeSpec::Scaling scaling_ = attention::RopeSpec::Scaling::none;
  attention::RopeTable rope_;
  PinnedMemory host_rows_, host_tables_, host_rotations_;
  CudaMemory rows_, tables_, rotations_;
};

}  // namespace switchyard::model::cuda
