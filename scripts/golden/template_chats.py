# SPDX-License-Identifier: Apache-2.0
"""Conversations for the chat templates in tests/golden/templates/chat/; every template meets every one."""

from golden.common import GOLDEN

FOLDER = GOLDEN / "templates" / "chat"

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city — now & <soon>",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Where: \"Köln\", 北京"},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer", "default": 3}}}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Look things up",
    "parameters": {"type": "object", "properties": {
        "terms": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "required": ["lang"], "properties": {
            "lang": {"type": "string"}, "pages": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}}},
        "limit": {"oneOf": [{"type": "integer", "default": 5}, {"type": "boolean"}]},
        "sort": {"type": ["string", "null"]}, "exact": {"type": "boolean", "default": False}}}}}
NO_ARGUMENTS = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}

USER = {"role": "user", "content": "Wie ist das Wetter in Köln?"}
SYSTEM = {"role": "system", "content": "  Be brief.\n"}
HELLO = {"role": "assistant", "content": "Hello!"}
CALL = {"role": "assistant", "content": "", "thinking": "need data", "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "exact": None}}}]}
CALL_TEXT = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Köln\"}"}}]}
CALL_TWO = {"role": "assistant", "content": "Two things.", "tool_calls": [
    {"type": "function", "function": {"name": "now", "arguments": {}}},
    {"type": "function", "function": {"name": "search", "arguments": {"terms": ["a", "b"], "exact": True}}}]}
RESULT = {"role": "tool", "content": "{\"t\": 21.5, \"sky\": \"<blue>\"}"}
THOUGHT = {"role": "assistant", "content": "<think>\nsecret\n</think>\n\nThe answer."}
REASONED = {"role": "assistant", "content": "Done.", "reasoning_content": "\nbecause\n"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "part one, "}, {"type": "image"}, {"type": "text", "text": "part two"}]}

CONVERSATIONS = {
    "one_turn": {"messages": [USER], "add_generation_prompt": True},
    "no_prompt": {"messages": [USER, HELLO], "add_generation_prompt": False},
    "prompt_undefined": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "many_turns": {"messages": [SYSTEM, USER, HELLO, {"role": "user", "content": "And 明天? 😀\n"}], "add_generation_prompt": True},
    "two_users": {"messages": [USER, USER], "add_generation_prompt": True},
    "late_system": {"messages": [USER, SYSTEM, USER], "add_generation_prompt": True},
    "thinking_off": {"messages": [USER], "add_generation_prompt": True, "enable_thinking": False},
    "thinking_on": {"messages": [USER], "add_generation_prompt": True, "enable_thinking": True},
    "old_thoughts": {"messages": [USER, THOUGHT, USER], "add_generation_prompt": True},
    "last_thoughts": {"messages": [USER, THOUGHT], "add_generation_prompt": False},
    "reasoning_content": {"messages": [USER, REASONED], "add_generation_prompt": False},
    "tools": {"messages": [USER], "tools": [WEATHER, SEARCH, NO_ARGUMENTS], "add_generation_prompt": True},
    "tools_none": {"messages": [USER], "tools": None, "documents": None, "add_generation_prompt": True},
    "tools_and_system": {"messages": [SYSTEM, USER], "tools": [WEATHER], "add_generation_prompt": True},
    "tool_call": {"messages": [USER, CALL, RESULT], "tools": [WEATHER], "add_generation_prompt": True},
    "tool_call_text": {"messages": [USER, CALL_TEXT, RESULT], "tools": [WEATHER], "add_generation_prompt": True},
    "two_tool_calls": {"messages": [USER, CALL_TWO, RESULT, RESULT, HELLO, USER], "add_generation_prompt": True},
    "tool_call_answered": {"messages": [USER, CALL, RESULT, HELLO], "add_generation_prompt": False},
    "tool_without_call": {"messages": [USER, RESULT], "add_generation_prompt": True},
    "parts": {"messages": [PARTS], "add_generation_prompt": True},
    "content_none": {"messages": [USER, {"role": "assistant", "content": None}, USER], "add_generation_prompt": True},
    "no_messages": {"messages": [], "add_generation_prompt": True},
    "extras": {"messages": [USER], "add_generation_prompt": True, "default_system": "Default.", "reasoning_effort": "high",
               "builtin_tools": ["search", "code_interpreter"], "date_string": "1 Jan 2000", "controls": {"length": "short", "citations": True},
               "documents": [{"doc_id": 7, "text": "Köln: 21 °C"}, {"doc_id": "b", "text": ""}]},
    "builtin_call": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "search", "arguments": {"query": "wetter", "where": "Köln"}}}]},
                                  {"role": "ipython", "content": {"t": 1.0}}], "builtin_tools": ["search"], "add_generation_prompt": True},
}


def chat_cases() -> list:
    """(name, file, variables) for every pair of template and conversation."""
    files = sorted(FOLDER.glob("*.jinja"))
    return [(f"{file.stem}/{name}", file, SPECIAL | variables)
            for file in files for name, variables in CONVERSATIONS.items()]
