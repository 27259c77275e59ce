// SPDX-License-Identifier: Apache-2.0
// Template: a chat template in the Jinja language, compiled once and rendered often.
//
// The language is that of Jinja2 as Hugging Face sets it up: immutable sandbox, trim_blocks, lstrip_blocks, break
// and continue, the tag "generation" (no effect), tojson without HTML escapes, raise_exception, strftime_now.
// Templates come from strangers: there are no host objects, and every rendering has a budget of work, output and
// depth. Reference: jinja.palletsprojects.com/templates; goldens in tests/golden/templates.
#pragma once
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja_value.h"

namespace switchyard::text {

using jinja::Value;

/// What one rendering may cost. Beyond it there is an error, never a wait.
struct RenderLimits {
  int64_t work = 5'000'000;  ///< nodes evaluated, elements made, and 32 bytes of text made each
  size_t output_bytes = size_t{4} << 20;  ///< the result, and any string made on the way
  int depth = 400;                        ///< statements, expressions and macros in one another
  int64_t range = 100'000;                ///< elements of range()
};

struct RenderOptions {
  RenderLimits limits;
  std::optional<std::tm> now;  ///< the clock behind strftime_now; without it, local time now
};

/// Immutable; one template serves many threads. Copies share the tree.
class Template {
 public:
  /// `name` starts every message. Errors: Code::bad_request with the line.
  static Result<Template> compile(std::string_view source, std::string name);

  /// `variables` is a dict. Errors: Code::bad_request with the line; for raise_exception its text alone.
  Result<std::string> render(const Value& variables, const RenderOptions& options = {}) const;
  /// The same text in pieces; neighbours differ in origin.
  Result<std::vector<Segment>> render_segments(const Value& variables,
                                               const RenderOptions& options = {}) const;

 private:
  struct Tree;
  std::shared_ptr<const Tree> tree_;
};

}  // namespace switchyard::text
