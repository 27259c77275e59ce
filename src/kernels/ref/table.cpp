// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/table.h"

#include "kernels/ops/row_major.h"
#include "kernels/ref/entries.h"

namespace switchyard::ref {
namespace {

template <class Op>
Verdict accept_all(const typename Op::Problem&) noexcept {
  return {};
}

template <class Op>
int64_t no_workspace(const typename Op::Problem&, int) noexcept {
  return 0;
}

template <class Op>
constexpr Kernel<Op> reference(std::string_view name, Run<Op>* run,
                               const typename Op::Packing* packing = nullptr) {
  return {name, {}, Role::candidate, accept_all<Op>, no_workspace<Op>, run, packing};
}

const Kernel<GroupedGemm> kGroupedGemm =
    reference<GroupedGemm>("grouped_gemm.ref", grouped_gemm, &kRowMajorPacking);
const Kernel<Attention> kAttention = reference<Attention>("attention.ref", attention);
const Kernel<RmsNorm> kRmsNorm = reference<RmsNorm>("rms_norm.ref", rms_norm);
const Kernel<PrepareQkv> kPrepareQkv = reference<PrepareQkv>("prepare_qkv.ref", prepare_qkv);
const Kernel<Gather> kGather = reference<Gather>("gather.ref", gather);
const Kernel<Combine> kCombine = reference<Combine>("combine.ref", combine);
const Kernel<Route> kRoute = reference<Route>("route.ref", route);

}  // namespace

template <>
const Kernel<GroupedGemm>& table() {
  return kGroupedGemm;
}
template <>
const Kernel<Attention>& table() {
  return kAttention;
}
template <>
const Kernel<RmsNorm>& table() {
  return kRmsNorm;
}
template <>
const Kernel<PrepareQkv>& table() {
  return kPrepareQkv;
}
template <>
const Kernel<Gather>& table() {
  return kGather;
}
template <>
const Kernel<Combine>& table() {
  return kCombine;
}
template <>
const Kernel<Route>& table() {
  return kRoute;
}

}  // namespace switchyard::ref
