// SPDX-License-Identifier: Apache-2.0
// Order: sequences in their order (comes_before), in one array: walking is what every step does, and comes and goes are
// rare. Cost: insert and erase move at most all pointers behind.
#pragma once
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "schedule/sequence.h"

namespace switchyard::schedule {

class Order {
 public:
  void reserve(int count) { sequences_.reserve(static_cast<size_t>(count)); }
  bool empty() const noexcept { return sequences_.empty(); }
  size_t size() const noexcept { return sequences_.size(); }
  Sequence& operator[](size_t index) const { return *sequences_[index]; }
  Sequence& first() const { return *sequences_.front(); }
  Sequence& last() const { return *sequences_.back(); }

  void insert(Sequence& sequence) { sequences_.insert(position(sequence), &sequence); }
  void erase(const Sequence& sequence) {
    const auto at = position(sequence);
    SWITCHYARD_CHECK(at != sequences_.end() && *at == &sequence, "sequence {} is not here",
                     sequence.id);
    sequences_.erase(at);
  }

 private:
  std::vector<Sequence*>::iterator position(const Sequence& sequence) {
    return std::lower_bound(
        sequences_.begin(), sequences_.end(), &sequence,
        [](const Sequence* a, const Sequence* b) { return comes_before(*a, *b); });
  }

  std::vector<Sequence*> sequences_;
};

}  // namespace switchyard::schedule
