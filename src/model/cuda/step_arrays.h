// SPDX-License-Identifier: Apache-2.0
// A step's integers: packed on the host, posted in pinned memory, where the step's first launch reads them (kernels/cuda/step_mail.h);
// block tables go by a copy of their own, only when they have changed.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "attention/rope.h"
#include "base/result.h"
#include "device/cuda.h"
#include "kernels/cuda/step_mail.h"
#include "model/model.h"

namespace switchyard::model::cuda {

/// How large a step is: what fixes every address and every grid of it.
struct StepShape {
  int64_t tokens = 0;      ///< T
  int sequences = 0;       ///< B
  int64_t logit_rows = 0;  ///< N
  bool samples = false;    ///< SampleRows go along
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
  const int32_t* live = nullptr;                        ///< [1] tokens that are no padding
  const switchyard::cuda::SampleRow* sample = nullptr;  ///< [N]
};

class StepArrays {
 public:
  using SampleRow = switchyard::cuda::SampleRow;

  /// Rotations of all positions are computed once, except with dynamic scaling,
  /// where they depend on the step.
  static Result<StepArrays> create(const LoadOptions& options, const ModelConfig& config,
                                   const Stream& stream, CudaStream& device);

  /// Takes the step over. With padding, the shape has more sequences than the input: those repeat the first one, and
  /// write their keys and values to a block that nobody reads (number num_kv_blocks).
  void pack(const model::StepInput& input, std::span<const SampleRow> sample,
            const StepShape& shape);
  /// Puts what was packed into the slot of the turn, for a step that is queued next, and queues copies of what else it needs.
  void post(uint32_t turn, const model::StepInput& input, const Stream& stream, CudaStream& device);
  /// The same without those copies, for the step that was packed and posted last.
  void post_again(uint32_t turn);
  /// After an error: what of them has arrived is not known.
  void forget_tables() noexcept { sent_sequences_ = 0; }
  /// No sequence of the packed step needs another block for one position more.
  bool can_go_on() const noexcept;
  /// The step is the packed one, one position on, with the tokens of `pick`.
  bool is_next(const model::StepInput& input, std::span<const SampleRow> sample,
               const int32_t* pick) const;

  StepPointers pointers(const StepShape& shape) const noexcept;
  /// How the step's first launch gets its arrays.
  switchyard::cuda::BeginStep begin(const StepShape& shape) const noexcept;

 private:
  int32_t* slot(uint32_t turn) const noexcept {
    return host_rows_.as<int32_t>() + turn % switchyard::cuda::kMailSlots * slot_words_;
  }
  void pack_padding(int first);
  void send_tables(const model::StepInput& input, CudaStream& device);
  void send_rotations(const model::StepInput& input, const Stream& stream, CudaStream& device);
  bool dynamic() const noexcept { return scaling_ == attention::RopeSpec::Scaling::dynamic; }

  int block_tokens_ = 16, max_blocks_ = 0;
  int sent_sequences_ = 0, sent_blocks_ = 0;  // of the tables that the device has
  int64_t dump_block_ = 0, pairs_ = 0, rope_rows_ = 0, slot_words_ = 0;
  attention::RopeSpec::Scaling scaling_ = attention::RopeSpec::Scaling::none;
  attention::RopeTable rope_;
  StepShape shape_;                      // of the packed step
  switchyard::cuda::StepLayout layout_;  // its
  std::vector<int32_t> packed_;          // [slot_words_]
  PinnedMemory host_rows_;               // [kMailSlots, slot_words_]
  PinnedMemory host_tables_, host_rotations_;
  CudaMemory rows_, tables_, rotations_;
};

}  // namespace switchyard::model::cuda
