// SPDX-License-Identifier: Apache-2.0
// AttributePath: "function.name" or "tags.0", as map, selectattr, sort and join take it.
#pragma once
#include <vector>

#include "text/jinja_library.h"

namespace switchyard::text::jinja {

class AttributePath {
 public:
  static Result<AttributePath> read(const Value& attribute);

  /// The part of `value`; `missing` (may be null) stands for parts that do not exist.
  Result<Value> get(Interpreter& interpreter, const Value& value, const Value* missing) const;

 private:
  std::vector<Value> steps_;
};

}  // namespace switchyard::text::jinja
