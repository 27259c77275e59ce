// SPDX-License-Identifier: Apache-2.0
// What scripts/check_isa_leak.py must find: compiled with a per-file -mavx512f, the sort below
// comes out as weak symbols full of AVX-512 that could replace the sort of the whole program.
#include <algorithm>
#include <vector>

namespace switchyard::leak_sample {

void scale_and_sort(std::vector<double>& values) {
  for (double& value : values) value = value * 1.5 + 0.25;
  std::sort(values.begin(), values.end());
}

}  // namespace switchyard::leak_sample
