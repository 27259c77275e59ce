// SPDX-License-Identifier: Apache-2.0
// Implements jinja.h.
#include "text/jinja.h"

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"
#include "text/unicode.h"

namespace switchyard::text {

struct Template::Tree {
  std::string name;
  jinja::Body body;
};

namespace {

std::tm local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  ::localtime_r(&seconds, &now);
  return now;
}

/// The engine walks strings without looking for broken characters, so that none may come in.
Status check_utf8(const Value& value) {
  if (value.is_string() && find_invalid_utf8(value.view()))
    return fail(Code::bad_request, "a text among the variables is not valid UTF-8");
  if (value.is_sequence())
    for (const Value& element : value.as_sequence().elements) SWITCHYARD_TRY(check_utf8(element));
  if (value.is_dict()) {
    for (const auto& [key, member] : value.as_dict().entries()) {
      SWITCHYARD_TRY(check_utf8(key));
      SWITCHYARD_TRY(check_utf8(member));
    }
  }
  return {};
}

Result<jinja::Text> render_text(const jinja::Body& body, const std::string& name,
                                const Value& variables, const RenderOptions& options) {
  if (!variables.is_dict())
    return fail(Code::bad_request, "{}: the variables of a template must be a dict, not '{}'", name,
                variables.type_name());
  SWITCHYARD_TRY(check_utf8(variables));
  jinja::Interpreter interpreter(options.limits, options.now ? *options.now : local_time());
  auto text = interpreter.run(body, variables.as_dict());
  if (!text.ok() && !interpreter.raised()) return with_context(text.error(), name);
  return text;
}

}  // namespace

Result<Template> Template::compile(std::string_view source, std::string name) {
  if (const auto at = find_invalid_utf8(source))
    return fail(Code::bad_request, "{}: the template is not valid UTF-8 at byte {}", name, *at);
  auto body = jinja::parse(source);
  if (!body.ok()) return with_context(body.error(), name);
  Template made;
  made.tree_ = std::make_shared<const Tree>(Tree{std::move(name), *std::move(body)});
  return made;
}

Result<std::string> Template::render(const Value& variables, const RenderOptions& options) const {
  auto text = render_text(tree_->body, tree_->name, variables, options);
  if (!text.ok()) return text.error();
  return std::string(text->view());
}

Result<std::vector<Segment>> Template::render_segments(const Value& variables,
                                                       const RenderOptions& options) const {
  auto text = render_text(tree_->body, tree_->name, variables, options);
  if (!text.ok()) return text.error();
  return text->segments();
}

}  // namespace switchyard::text
