// SPDX-License-Identifier: Apache-2.0
// The attention kernels between which attend_decode and attend_prefill (step.h) choose, for tests and measurements.
#pragma once
#include "kernels/cuda/step.h"

namespace switchyard::cuda {

/// mma.sync and cp.async; what attend_fast_accepts.
void attend_decode_sm80(const Attend& args, StreamHandle stream) noexcept;
void attend_prefill_sm80(const Attend& args, StreamHandle stream) noexcept;

/// Bulk tensor copies, and wgmma in prefill. False, and nothing is queued, where the current device is no sm_90 or cannot
/// describe the caches.
bool attend_is_sm90() noexcept;  ///< the current device
/// Whether both will take steps of this shape and these caches.
bool attend_sm90a_accepts(const Attend& args) noexcept;
bool attend_decode_sm90a(const Attend& args, StreamHandle stream) noexcept;
bool attend_prefill_sm90a(const Attend& args, StreamHandle stream) noexcept;

}  // namespace switchyard::cuda
