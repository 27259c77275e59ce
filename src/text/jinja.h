// SPDX-License-Identifier: Apache-2.0
// Template: a chat template in the Jinja language, compiled once and rendered often.
//
// The language is Jinja2's as Hugging Face sets it up: immutable sandbox, trim_blocks, lstrip_blocks,
// break and continue, the generation tag, tojson without HTML escapes, raise_exception and
// strftime_now. There are no host objects to reach, and every rendering has budgets: steps, bytes,
// output, depth. Reference: jinja.palletsprojects.com/templates; goldens in tests/golden/templates.
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

namespace switchyard::text::jinja {

/// What one rendering may cost. Beyond it there is an error, never a wait.
struct Limits {
  int64_t steps = 5'000'000;             ///< statements and expressions
  int64_t work_bytes = int64_t{512} << 20;  ///< bytes of all values made on the way
  size_t output_bytes = size_t{4} << 20;    ///< the text, and each text captured on the way
  int depth = 1500;                      ///< nested statements, expressions and macro calls
};

struct RenderOptions {
  Limits limits;
  /// The clock behind strftime_now; without it, local time now.
  std::optional<std::tm> now;
};

/// A stretch of rendered text. Special tokens may be read in template text alone: user data that
/// spells one stays plain text.
struct Segment {
  std::string text;
  bool from_template = false;
};

/// Immutable; one template serves many threads.
class Template {
 public:
  /// Errors, with line and column: Code::bad_file for wrong syntax, Code::unsupported for a tag,
  /// filter or test that is unknown here.
  static Result<Template> compile(std::string_view source);

  /// `variables` is a dict. Errors: Code::bad_request, with line and column; raise_exception gives
  /// its own text alone.
  Result<std::string> render(const Value& variables, const RenderOptions& options = {}) const;
  /// The same text in stretches of one origin; neighbours differ in origin.
  Result<std::vector<Segment>> render_segments(const Value& variables,
                                               const RenderOptions& options = {}) const;

 private:
  struct Program;
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace switchyard::text::jinja
