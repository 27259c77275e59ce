// SPDX-License-Identifier: Apache-2.0
// Origins are kept as the places where they change, so that text of one origin costs nothing more.
#include "text/jinja_text.h"

#include <algorithm>

namespace switchyard::text::jinja {

size_t Text::flips_before_or_at(size_t at) const noexcept {
  return static_cast<size_t>(std::upper_bound(flips_.begin(), flips_.end(), at) - flips_.begin());
}

Origin Text::origin() const noexcept {
  return !flips_.empty() || (first_ == Origin::data && !bytes_.empty()) ? Origin::data
                                                                        : Origin::trusted;
}

Text Text::slice(size_t from, size_t to) const {
  Text out;
  out.append(*this, from, to);
  return out;
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_ = origin;
  } else if (origin_of_stretch(flips_.size()) != origin) {
    flips_.push_back(bytes_.size());
  }
  bytes_ += bytes;
}

void Text::append(const Text& text, size_t from, size_t to) {
  text.for_each_stretch(from, to, [this](std::string_view stretch, Origin origin) {
    append(stretch, origin);
  });
}

}  // namespace switchyard::text::jinja
