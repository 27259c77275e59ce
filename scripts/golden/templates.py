# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/templates/: chat templates and what the environment of transformers renders.

features.jsonl has one small template a line; chats.jsonl names the whole chat templates in chat/, which
are written by hand. See tests/golden/README.md.
"""

import datetime
import json

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

from golden import template_features, template_library
from golden.common import GOLDEN, versions, write_json, write_lines
from golden.template_chats import chat_cases

NOW = datetime.datetime(2025, 3, 9, 14, 5, 6)


def write_templates() -> None:
    """Renders every case and writes both files."""
    folder = GOLDEN / "templates"
    groups = {
        "statement": template_features.STATEMENTS, "scope": template_features.SCOPES,
        "whitespace": template_features.WHITESPACE, "expression": template_features.EXPRESSIONS,
        "library": template_library.EVERY,
    }
    small = [_case(f"{group}/{name}", {"template": template}, template, variables)
             for group, cases in groups.items() for name, template, variables in cases]
    if len({case["name"] for case in small}) != len(small):
        raise RuntimeError("two template cases have one name")
    if not template_library.EXTRA <= {case["name"] for case in small}:
        raise RuntimeError("EXTRA names a case that does not exist")
    write_lines(folder / "features.jsonl", small)
    chats = [_case(name, {"template_file": f"chat/{file.name}"}, file.read_text(encoding="utf-8"), variables)
             for name, file, variables in chat_cases()]
    write_lines(folder / "chats.jsonl", chats)
    write_json(folder / "index.json", {
        "made_with": versions("Jinja2", "MarkupSafe", "transformers"),
        "environment": "ImmutableSandboxedEnvironment as transformers builds it: trim_blocks, lstrip_blocks, "
                       "loopcontrols, generation; tojson without HTML escapes; raise_exception, strftime_now",
        "now": NOW.isoformat(), "features.jsonl": len(small), "chats.jsonl": len(chats)})


def _case(name: str, where: dict, template: str, variables: dict) -> dict:
    case = {"name": name, **where, "variables": variables}
    if name in template_library.EXTRA:
        case["extra"] = True
    if "strftime_now" in template:
        case["now"] = NOW.isoformat()
    try:
        return case | {"text": _render(template, variables)}
    except Exception as error:  # Every failure is an expected result here.
        return case | {"error": _kind(error), "message": str(error)}


def _render(template: str, variables: dict) -> str:
    compiled = _compile_jinja_template(template)
    compiled.environment.globals["strftime_now"] = NOW.strftime
    # The variables go through JSON, as they do in a test.
    return compiled.render(**json.loads(json.dumps(variables)))


def _kind(error: Exception) -> str:
    if isinstance(error, (jinja2.TemplateSyntaxError, SyntaxError)):
        return "syntax"
    if isinstance(error, jinja2.UndefinedError):
        return "undefined"
    if isinstance(error, jinja2.sandbox.SecurityError):
        return "security"
    if type(error) is jinja2.TemplateError:
        return "raised"
    return "runtime"
