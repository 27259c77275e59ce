// SPDX-License-Identifier: Apache-2.0
// Routing means what the selector of the spec does: it stands in moe/route, above this folder, and comes with the
// problem.
#include "kernels/ops/route.h"

#include "kernels/ref/entries.h"

namespace switchyard::ref {

void route(const Route::Problem& problem, const Route::Args& args, std::span<std::byte>,
           const Stream& stream) noexcept {
  SWITCHYARD_CHECK(problem.reference != nullptr, "route.ref without a selector");
  *args.unusable_rows = problem.reference(problem.spec, args.in, args.out, stream);
}

}  // namespace switchyard::ref
