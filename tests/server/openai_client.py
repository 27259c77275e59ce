#!/usr/bin/env python3
"""OpenAI's own client against a running server. Usage: openai_client.py http://127.0.0.1:8000 [MODEL]

Streams, whole answers, usage, choices and errors. Exits with 77 (skipped) where the package openai is not installed.
"""
import sys

try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed")
    sys.exit(77)

MESSAGES = [{"role": "user", "content": "What is a river?"}]
REFUSED = [
    ({"temperature": 5}, openai.BadRequestError, "temperature"),
    ({"max_tokens": 10**6}, openai.BadRequestError, "messages"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, openai.BadRequestError, "tools"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "none such"}}}},
     openai.BadRequestError, "response_format"),
    ({"model": "no such model"}, openai.NotFoundError, "model"),
]


def streamed(client, model, **options) -> tuple[str, object]:
    text, usage = "", None
    for chunk in client.chat.completions.create(model=model, messages=MESSAGES, stream=True,
                                                stream_options={"include_usage": True}, **options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
    return text, usage


def refusals(client, model) -> None:
    for options, kind, param in REFUSED:
        try:
            client.chat.completions.create(**{"model": model, "messages": MESSAGES, **options})
        except openai.APIStatusError as error:
            assert isinstance(error, kind) and error.param == param, (options, error)
            assert error.request_id, options
            print(f"refused {param}: {type(error).__name__} {error.status_code} {error.code}")
        else:
            raise AssertionError(f"{options} was accepted")


def main() -> int:
    client = openai.OpenAI(base_url=sys.argv[1].rstrip("/") + "/v1", api_key="unused", max_retries=0)
    model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    options = {"temperature": 0, "max_tokens": 12}
    whole = client.chat.completions.create(model=model, messages=MESSAGES, **options)
    text, usage = streamed(client, model, **options)
    assert text == whole.choices[0].message.content, (text, whole)
    assert usage.total_tokens == whole.usage.total_tokens, (usage, whole.usage)
    print(f"chat, whole and streamed: {text!r}, {usage.total_tokens} tokens")
    with client.chat.completions.stream(model=model, messages=MESSAGES, **options) as events:
        content = "".join(event.delta for event in events if event.type == "content.delta")
    assert content == text, content
    print("stream events: the same")
    many = client.completions.create(model=model, prompt=["The kernel", "In the beginning"], n=2, **options)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == many.choices[1].text != many.choices[2].text
    print(f"completions: {len(many.choices)} choices, {many.usage.completion_tokens} tokens")
    refusals(client, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
