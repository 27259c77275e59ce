// SPDX-License-Identifier: Apache-2.0
// Device memory made of physical pages whose order can be changed: for data that is placed by where its pages lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"

namespace switchyard {

/// Pages of the current device in one range of addresses, uninitialised. Costs some 0.1 ms a page; the driver makes and maps each by itself.
class CudaPages {
 public:
  static constexpr int64_t kPageBytes = 2 << 20;

  /// Errors: Code::out_of_memory when so much is not left, Code::unavailable when the driver cannot do it.
  static Result<CudaPages> allocate(int64_t bytes);
  CudaPages() noexcept;
  CudaPages(CudaPages&&) noexcept;
  CudaPages& operator=(CudaPages&&) noexcept;
  ~CudaPages();

  /// Aligned to two pages.
  std::byte* data() const noexcept;
  int64_t num_pages() const noexcept;
  /// Exchanges the pages at two places, with what is in them. No work that reaches them may be under way. After an error nothing but
  /// destruction is allowed.
  Status exchange(int64_t a, int64_t b);
  /// Keeps the order as it is: no exchange() after it.
  void settle() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace switchyard
