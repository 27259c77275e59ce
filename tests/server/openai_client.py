#!/usr/bin/env python3
"""OpenAI's own client against a running server. Usage: openai_client.py http://127.0.0.1:8000 [MODEL]

Streams, whole answers, usage, choices, tools, schemas, log probabilities, errors and retries. Exits with 77 (skipped) where the
package openai is not installed. Arguments and schemas are validated by jsonschema where that is installed.
"""
import http.server
import json
import sys
import threading

try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed")
    sys.exit(77)
try:
    import jsonschema
except ImportError:
    jsonschema = None

MESSAGES = [{"role": "user", "content": "What is a river?"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
           "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "A forecast.", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "stop"}}]
STRICT = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


def format_of(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}


REFUSED = [
    ({"temperature": 5}, openai.BadRequestError, "temperature", "invalid_value"),
    ({"max_tokens": 10**6}, openai.BadRequestError, "messages", "context_length_exceeded"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, openai.BadRequestError, "tools[0].function.name",
     "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "none such"}}}]},
     openai.BadRequestError, "tools[0].function.parameters", "invalid_schema"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, openai.BadRequestError,
     "tool_choice", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, openai.BadRequestError, "top_logprobs", "invalid_value"),
    ({"logit_bias": {"0": 101}}, openai.BadRequestError, "logit_bias", "invalid_value"),
    ({"response_format": format_of({"type": "none such"})}, openai.BadRequestError, "response_format", "invalid_schema"),
    ({"model": "no such model"}, openai.NotFoundError, "model", "model_not_found"),
]


def validate(text: str, schema: dict) -> dict:
    value = json.loads(text)
    if jsonschema:
        jsonschema.validate(value, schema)
    return value


def streamed(client, model, **options) -> tuple[str, object]:
    text, usage = "", None
    for chunk in client.chat.completions.create(model=model, messages=MESSAGES, stream=True,
                                                stream_options={"include_usage": True}, **options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
    return text, usage


def chats(client, model) -> None:
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


def tools(client, model) -> None:
    options = {"model": model, "messages": MESSAGES, "seed": 3, "temperature": 1, "max_tokens": 200}
    forced = {"type": "function", "function": {"name": "weather"}}
    whole = client.chat.completions.create(tools=TOOLS, tool_choice=forced, **options).choices[0]
    call = whole.message.tool_calls[0]
    arguments = validate(call.function.arguments, WEATHER)
    assert whole.finish_reason == "tool_calls" and whole.message.content is None and call.function.name == "weather"
    with client.chat.completions.stream(tools=STRICT, tool_choice=forced, **options) as events:
        pieces = [event for event in events if event.type.startswith("tool_calls.function.arguments")]
        final = events.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls" and final.message.tool_calls[0].function.name == "weather", final
    validate(final.message.tool_calls[0].function.arguments, WEATHER)
    assert len(pieces) > 2, pieces
    print(f"forced tool, whole and in {len(pieces)} events: weather({arguments})")

    raw = client.chat.completions.create(tools=TOOLS, tool_choice="required", n=2, stream=True, **options)
    calls, finishes = {}, {}
    for chunk in raw:
        for choice in chunk.choices:
            finishes[choice.index] = choice.finish_reason or finishes.get(choice.index)
            for delta in choice.delta.tool_calls or []:
                seen = calls.setdefault((choice.index, delta.index), {"name": "", "arguments": "", "ids": 0})
                seen["ids"] += delta.id is not None
                seen["name"] += delta.function.name or ""
                seen["arguments"] += delta.function.arguments or ""
    assert {index for index, _ in calls} == {0, 1} and all(seen["ids"] == 1 for seen in calls.values()), calls
    for (index, number), seen in calls.items():
        last = number == max(n for i, n in calls if i == index)
        if finishes[index] == "tool_calls" or not last:  # else its arguments may be cut
            validate(seen["arguments"], WEATHER if seen["name"] == "weather" else {"type": "object"})
    print(f"required, n=2: {len(calls)} calls, {finishes}")

    answer = client.chat.completions.create(
        model=model, tools=TOOLS, temperature=0, max_tokens=8,
        messages=[*MESSAGES, whole.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}])
    assert answer.usage.prompt_tokens > 0 and answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    free = client.chat.completions.create(model=model, messages=MESSAGES, tools=TOOLS, temperature=0, max_tokens=8)
    assert free.choices[0].message.content or free.choices[0].message.tool_calls
    print("the answer of a tool, and a free choice: accepted")


def schemas(client, model) -> None:
    for seed in range(3):
        answer = client.chat.completions.create(model=model, messages=MESSAGES, seed=seed, temperature=1, max_tokens=200,
                                                response_format=format_of(PERSON)).choices[0]
        assert answer.finish_reason == "stop", answer
        person = validate(answer.message.content, PERSON)
    print(f"schema: {person}")


def logprobs(client, model) -> None:
    options = {"temperature": 0, "max_tokens": 6}
    chat = client.chat.completions.create(model=model, messages=MESSAGES, logprobs=True, top_logprobs=5, **options).choices[0]
    tokens = chat.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == chat.message.content
    assert all(len(token.top_logprobs) == 5 and -9999 <= token.logprob <= 0 for token in tokens), tokens
    old = client.completions.create(model=model, prompt="The kernel", logprobs=3, **options).choices[0]
    assert len(old.logprobs.tokens) == len(old.logprobs.token_logprobs) == len(old.logprobs.top_logprobs) == 6
    biased = client.completions.create(model=model, prompt="The kernel", logit_bias={"300": 100}, **options).choices[0]
    assert biased.text != old.text
    print(f"logprobs: {[round(token.logprob, 3) for token in tokens]}")


def refusals(client, model) -> None:
    for options, kind, param, code in REFUSED:
        try:
            client.chat.completions.create(**{"model": model, "messages": MESSAGES, **options})
        except openai.APIStatusError as error:
            assert isinstance(error, kind) and (error.param, error.code) == (param, code), (options, error)
            assert error.request_id, options
            print(f"refused {param}: {type(error).__name__} {error.status_code} {error.code}")
        else:
            raise AssertionError(f"{options} was accepted")


class Busy(http.server.BaseHTTPRequestHandler):
    """In front of the server: the first two calls get what a full queue answers, the third goes through."""
    upstream, seen = "", []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Busy.seen.append(self.headers.get("x-stainless-retry-count"))
        if len(Busy.seen) <= 2:
            answer = json.dumps({"error": {"message": "busy", "type": "rate_limit_error", "param": None,
                                           "code": "queue_full"}}).encode()
            self.send_response(429)
            self.send_header("Retry-After", "0")
        else:
            import urllib.request
            request = urllib.request.Request(Busy.upstream + self.path, body, {"Content-Type": "application/json"})
            answer = urllib.request.urlopen(request).read()
            self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def retries(url: str, model: str) -> None:
    Busy.upstream = url
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{proxy.server_port}/v1", api_key="unused", max_retries=2)
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=2)
    assert answer.usage.completion_tokens <= 2 and Busy.seen == ["0", "1", "2"], Busy.seen
    impatient = client.with_options(max_retries=0)
    Busy.seen = []
    try:
        impatient.chat.completions.create(model=model, messages=MESSAGES, max_tokens=2)
    except openai.RateLimitError as error:
        assert error.code == "queue_full", error
    else:
        raise AssertionError("429 was no error")
    proxy.shutdown()
    print("retries: two 429, then an answer; without retries a RateLimitError")


def main() -> int:
    url = sys.argv[1].rstrip("/")
    client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)
    model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    print(f"openai {openai.__version__}, model {model}, arguments {'validated' if jsonschema else 'parsed'}")
    for part in (chats, tools, schemas, logprobs, refusals):
        part(client, model)
    retries(url, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
