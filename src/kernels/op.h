// SPDX-License-Identifier: Apache-2.0
// What an operation is: a Problem that is fixed at load, Args of one call, and a table of kernels, best first, the
// plain reference last. A kernel accepts a problem or refuses it with a reason; the reference never refuses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "device/device.h"

namespace switchyard {

/// What the machine must have. CPU entries state the features of their code region; GPU entries a range of
/// compute capabilities (major * 10 + minor).
struct Needs {
  uint64_t cpu_features = 0;
  int sm_min = 0, sm_max = 0;
};

/// Null when the problem is accepted, else the reason in plain words.
struct Verdict {
  const char* refused = nullptr;
};

/// For operations whose weights need no packing.
struct NoPacking {};

/// Whether select() may choose an entry by itself.
enum class Role : uint8_t {
  candidate,  ///< chosen when it is the first that accepts
  baseline,   ///< only when pinned by name: kept for comparison in benchmarks
};

template <class Op>
struct Kernel {
  std::string_view name;  ///< "grouped_gemm.cpu.amx_bf16"
  Needs needs;
  Role role = Role::candidate;
  Verdict (*accept)(const typename Op::Problem&) noexcept;
  /// Bytes of scratch that one run needs for `num_threads` threads.
  int64_t (*workspace)(const typename Op::Problem&, int num_threads) noexcept;
  void (*run)(const typename Op::Problem&, const typename Op::Args&, std::span<std::byte> workspace,
              const Stream&) noexcept;
  const typename Op::Packing* packing =
      nullptr;  ///< how weights must be laid out; null: row-major as given
};

/// A kernel chosen for a problem. Copyable; run() checks the workspace and calls the kernel: no dispatch in a step.
template <class Op>
class Bound {
 public:
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  Bound() = default;
  Bound(const Kernel<Op>& kernel, const Problem& problem) : kernel_(&kernel), problem_(problem) {}

  explicit operator bool() const noexcept { return kernel_ != nullptr; }
  const Problem& problem() const noexcept { return problem_; }
  std::string_view name() const noexcept { return kernel_->name; }
  const typename Op::Packing* packing() const noexcept { return kernel_->packing; }
  int64_t workspace_bytes(int num_threads) const noexcept {
    return kernel_->workspace(problem_, num_threads);
  }
  void run(const Args& args, std::span<std::byte> workspace, const Stream& stream) const noexcept {
    SWITCHYARD_CHECK(kernel_ != nullptr, "unbound kernel");
    SWITCHYARD_DCHECK(
        static_cast<int64_t>(workspace.size()) >= workspace_bytes(stream.pool().num_threads()),
        "{}: workspace of {} bytes", name(), workspace.size());
    kernel_->run(problem_, args, workspace, stream);
  }

 private:
  const Kernel<Op>* kernel_ = nullptr;
  Problem problem_{};
};

}  // namespace switchyard
