// SPDX-License-Identifier: Apache-2.0
// Macros: binding of arguments and the call.
#include <algorithm>

#include "text/jinja_guards.h"
#include "text/jinja_objects.h"

namespace switchyard::text::jinja {

Value Interpreter::make_macro(const MacroNode& node) {
  return keep(std::make_shared<Macro>(node, scope_));
}

Result<Value> Interpreter::call_macro(const MacroNode& node, const std::shared_ptr<Scope>& closure,
                                      const Arguments& arguments) {
  const Deeper deeper(*this);
  SWITCHYARD_TRY(deeper.check());
  Text text;
  Text* const outer = std::exchange(output_, &text);
  const ScopeGuard guard(*this, std::make_shared<Scope>(closure));
  Result<Flow> flow = Flow::go_on;
  const Status bound = bind_macro(node, arguments);
  if (bound.ok()) flow = execute(node.body);
  output_ = outer;
  SWITCHYARD_TRY(bound);
  SWITCHYARD_TRY(flow);
  return Value(std::move(text));
}

Status Interpreter::bind_macro(const MacroNode& node, const Arguments& arguments) {
  if (arguments.positional.size() > node.parameters.size() && !node.uses_varargs)
    return fail(Code::bad_request, "macro '{}' takes not more than {} argument(s)", node.name,
                node.parameters.size());
  std::vector<bool> used(arguments.named.size(), false);
  SWITCHYARD_TRY(bind_parameters(node, arguments, used));
  return bind_extras(node, arguments, used);
}

Status Interpreter::bind_parameters(const MacroNode& node, const Arguments& arguments,
                                    std::vector<bool>& used) {
  for (size_t i = 0; i < node.parameters.size(); ++i) {
    const Parameter& parameter = node.parameters[i];
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& entry) { return entry.first == parameter.name; });
    const bool positional = i < arguments.positional.size();
    if (named != arguments.named.end()) {
      if (positional)
        return fail(Code::bad_request, "macro '{}' got multiple values for argument '{}'",
                    node.name, parameter.name);
      used[static_cast<size_t>(named - arguments.named.begin())] = true;
      scope_->set(parameter.name, named->second);
    } else if (positional) {
      scope_->set(parameter.name, arguments.positional[i]);
    } else if (parameter.fallback) {
      SWITCHYARD_ASSIGN(Value value, evaluate(*parameter.fallback));
      scope_->set(parameter.name, std::move(value));
    } else {
      scope_->set(parameter.name,
                  Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  return {};
}

Status Interpreter::bind_extras(const MacroNode& node, const Arguments& arguments,
                                const std::vector<bool>& used) {
  Dict extra;
  Value caller = Value::undefined("there is no caller: the macro was not called by a block 'call'");
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    const auto& [name, value] = arguments.named[i];
    if (used[i]) continue;
    if (name == "caller" && node.uses_caller) {
      caller = value;
    } else if (node.uses_kwargs) {
      SWITCHYARD_TRY(extra.set(Value::string(name, true), value));
    } else {
      return fail(Code::bad_request, "macro '{}' takes no keyword argument '{}'", node.name, name);
    }
  }
  if (node.uses_caller) scope_->set("caller", std::move(caller));
  if (node.uses_kwargs) scope_->set("kwargs", Value::dict(std::move(extra)));
  if (!node.uses_varargs) return {};
  const size_t taken = std::min(node.parameters.size(), arguments.positional.size());
  scope_->set("varargs", Value::tuple({arguments.positional.begin() + static_cast<ptrdiff_t>(taken),
                                       arguments.positional.end()}));
  return {};
}

}  // namespace switchyard::text::jinja
