#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that others wrote, each for a moment, against a server of ours; one line each, with its version and what came of it.

    tests/server/clients.py BUILD [--python PYTHON] [--out OUT.jsonl] [--only curl,openai,...]

BUILD is a build folder with `switchyard`. Clients that are not installed are named as such: curl, wrk, hey and slowhttptest
come from Debian (apt-get install curl wrk hey slowhttptest), the others from PyPI, found by PYTHON (default: this one):

    python3 -m venv V && V/bin/pip install openai langchain-openai guidellm aiperf && tests/server/clients.py BUILD --python V/bin/python

Exits with 1 when a client that is there did not get what it should.
"""

import argparse
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from serve_process import Server, free_port  # noqa: E402

LANGCHAIN = """
import sys, langchain_openai, importlib.metadata
model = langchain_openai.ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", model="demo", temperature=0, max_tokens=12,
                                    max_retries=0, stream_usage=True)
whole = model.invoke("What is a river?")
pieces = list(model.stream("What is a river?"))
text = "".join(piece.content for piece in pieces)
usage = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
assert text == whole.content and text, (text, whole)
assert usage and usage[-1]["output_tokens"] == whole.usage_metadata["output_tokens"], (usage, whole)
batch = model.batch(["What is a river?"] * 3)
assert all(answer.content == text for answer in batch)
print(f"invoke, stream and batch agree: {usage[-1]['total_tokens']} tokens")
"""
RETRIES = """
import sys, threading, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="unused", max_retries=20)
answers = []
def ask():
    answers.append(client.completions.create(model="demo", prompt="The kernel", max_tokens=200, temperature=0,
                                             extra_body={"ignore_eos": True}))
threads = [threading.Thread(target=ask) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(answers) == 6 and len({answer.choices[0].text for answer in answers}) == 1, answers
"""
WRK = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"prompt": "The kernel", "max_tokens": 4, "temperature": 0}'
"""


class Missing(Exception):
    """A client that is not installed."""


class Run:
    """What a client is given: the server, a scratch folder, and the Python of the packages."""

    def __init__(self, server: Server, folder: pathlib.Path, python: str):
        self.server, self.folder, self.python = server, folder, python

    def say(self, command: list, timeout_s: float = 240, good: tuple = (0,)) -> str:
        if shutil.which(str(command[0])) is None:
            raise Missing(command[0])
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=timeout_s,
                              cwd=self.folder)
        assert done.returncode in good, f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
        return done.stdout + done.stderr

    def tool(self, name: str) -> str:
        """A program of the packages, beside their Python."""
        path = pathlib.Path(self.python).parent / name
        if not path.exists():
            raise Missing(name)
        return str(path)

    def package(self, name: str) -> str:
        done = subprocess.run([self.python, "-c", f"import importlib.metadata as m; print(m.version({name!r}))"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(name)
        return done.stdout.strip()


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, f"no {pattern} in {text[-600:]}"
    return found.group(1)


def curl(run: Run) -> tuple[str, str]:
    version = first(r"curl (\S+)", run.say(["curl", "--version"]))
    body = json.dumps({"messages": [{"role": "user", "content": "What is a river?"}], "stream": True, "max_tokens": 8})
    said = run.say(["curl", "-sSN", "--fail-with-body", f"{run.server.url}/v1/chat/completions", "-H",
                    "Content-Type: application/json", "-d", body])
    events = said.count("data: {")
    assert said.endswith("data: [DONE]\n\n") and events >= 3, said[-300:]
    return version, f"{events} events and [DONE]"


def wrk(run: Run) -> tuple[str, str]:
    script = run.folder / "post.lua"
    script.write_text(WRK)
    version = first(r"wrk (?:debian/)?(\S+)", run.say(["wrk", "-v"], good=(0, 1)))
    probes = run.say(["wrk", "-t1", "-c32", "-d3s", f"{run.server.url}/health"])
    calls = run.say(["wrk", "-t1", "-c16", "-d3s", "-s", script, f"{run.server.url}/v1/completions"])
    assert "Non-2xx" not in probes + calls and "Socket errors" not in probes + calls, probes + calls
    counts = [first(r"(\d+) requests in", said) for said in (probes, calls)]
    return version, f"{counts[0]} of /health on 32 connections, {counts[1]} completions on 16, in 3 s each; no errors"


def hey(run: Run) -> tuple[str, str]:
    version = first(r"Version: (\S+)", run.say(["dpkg", "-s", "hey"])) if shutil.which("hey") else ""
    said = run.say(["hey", "-n", "64", "-c", "8", "-m", "POST", "-T", "application/json", "-d",
                    '{"prompt": "The kernel", "max_tokens": 4}', f"{run.server.url}/v1/completions"])
    assert re.search(r"\[200\]\s+64 responses", said) and "Error distribution" not in said, said[-600:]
    return version, "64 of 64 answered with 200"


def slowhttptest(run: Run) -> tuple[str, str]:
    """Slow heads, slow bodies and slow readers, 200 connections each, beside a probe that must be answered all the while."""
    version = first(r"Version: (\S+)", run.say(["dpkg", "-s", "slowhttptest"])) if shutil.which("slowhttptest") else ""
    over, slowest = threading.Event(), [0.0, 0]

    def probe() -> None:
        while not over.wait(0.2):
            start = time.monotonic()
            with urllib.request.urlopen(run.server.url + "/health", timeout=10) as answer:
                assert answer.status == 200
            slowest[0], slowest[1] = max(slowest[0], time.monotonic() - start), slowest[1] + 1

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    kinds = {"heads": ["-H", "-i", "3"], "bodies": ["-B", "-i", "3", "-s", "8192"], "readers": ["-X", "-w", "10", "-y", "20", "-n", "5", "-z", "4"]}
    for options in kinds.values():
        run.say(["slowhttptest", *options, "-c", "200", "-r", "100", "-l", "15", "-p", "3", "-u", f"{run.server.url}/health"],
                good=(0, 1))
    alive = thread.is_alive()
    over.set()
    thread.join()
    assert alive and slowest[1] > 20, f"the probe stopped after {slowest[1]} answers"
    return version, f"slow {', '.join(kinds)}, 200 connections each: /health answered {slowest[1]} times, at the slowest after {slowest[0] * 1e3:.0f} ms"


def openai(run: Run) -> tuple[str, str]:
    version = run.package("openai")
    said = run.say([run.python, ROOT / "tests/server/openai_client.py", run.server.url, "demo"])
    return version, f"{len(said.splitlines())} checks: streams, choices, usage, refusals"


def openai_retries(run: Run) -> tuple[str, str]:
    """Six calls at once for a server with room for two: who is turned away comes again when Retry-After says so."""
    version, port = run.package("openai"), free_port()
    command = [*run.server.command[:3], "--port", port, "--max-sequences", "1", "--max-queued-requests", "1"]
    with Server(command, port, run.folder / "small.log") as small:
        run.say([run.python, "-c", RETRIES, small.url])
        metrics = small.metrics()
    away = sum(value for name, value in metrics.items() if name.startswith("switchyard_http_requests_total") and 'code="429"' in name)
    assert away > 0, "nobody was turned away"
    return version, f"6 of 6 answered with room for 2, after {away:.0f} refusals with 429"


def langchain(run: Run) -> tuple[str, str]:
    version = run.package("langchain-openai")
    return version, run.say([run.python, "-c", LANGCHAIN, run.server.url]).splitlines()[-1]


def guidellm(run: Run) -> tuple[str, str]:
    version = run.package("guidellm")
    out = run.folder / "guidellm.json"
    said = run.say([run.tool("guidellm"), "run", "--backend", f"kind=openai_http,target={run.server.url}", "--profile",
                    "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=16", "--tokenizer",
                    f"kind=huggingface_auto,model={ROOT / 'models/demo'}", "--data",
                    "kind=synthetic_text,prompt_tokens=32,output_tokens=16", "--output", f"kind=json,path={out}", "--disable-progress"])
    return version, guidellm_result(json.loads(out.read_text()), said)


def guidellm_result(report: dict, said: str) -> str:
    requests = report["benchmarks"][0]["requests"]
    good, bad = len(requests["successful"]), len(requests["errored"])
    assert good >= 16 and bad == 0, said[-600:]
    return f"{good} requests of 2 streams succeeded, none failed"


def aiperf(run: Run) -> tuple[str, str]:
    version = run.package("aiperf")
    run.say([run.tool("aiperf"), "profile", "--model", "demo", "--url", run.server.url, "--endpoint-type", "completions", "--streaming",
             "--tokenizer", ROOT / "models/demo", "--request-count", "16", "--concurrency", "2", "--synthetic-input-tokens-mean", "32",
             "--output-tokens-mean", "16", "--extra-inputs", "ignore_eos:true", "--ui", "none", "--output-artifact-dir",
             run.folder / "aiperf"])
    found = list((run.folder / "aiperf").rglob("profile_export_aiperf.json"))
    report = json.loads(found[0].read_text())
    count = report["request_count"]["avg"]
    assert count == 16 and not report.get("error_summary"), report.get("error_summary")
    return version, f"{count:.0f} requests of 2 streams, no errors"


CLIENTS = {"curl": curl, "wrk": wrk, "hey": hey, "slowhttptest": slowhttptest, "openai": openai, "openai-retries": openai_retries, "langchain-openai": langchain,
           "guidellm": guidellm, "aiperf": aiperf}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=pathlib.Path, help="also append a JSON line for each")
    parser.add_argument("--only", default=",".join(CLIENTS), help="of " + ", ".join(CLIENTS))
    args = parser.parse_args()
    port, failed = free_port(), False
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        command = [args.build.resolve() / "switchyard", "serve", ROOT / "models/demo", "--port", port, "--max-sequences", "16"]
        with Server(command, port, folder / "server.log") as server:
            for name in args.only.split(","):
                row = {"date": datetime.date.today().isoformat(), "client": name}
                try:
                    version, result = CLIENTS[name](Run(server, folder, args.python))
                    row |= {"version": version, "result": result, "ok": True}
                except Missing as missing:
                    row |= {"result": f"not installed: {missing}", "ok": None}
                except (AssertionError, subprocess.TimeoutExpired, KeyError, IndexError, OSError) as error:
                    row |= {"result": str(error), "ok": False}
                    failed = True
                print(f"{'ok  ' if row['ok'] else 'FAIL' if row['ok'] is False else '--  '} {name} {row.get('version', '')}: {row['result']}",
                      flush=True)
                if args.out:
                    with args.out.open("a") as out:
                        print(json.dumps(row), file=out)
            if server.process.poll() is not None:
                sys.exit(f"the server ended with {server.process.returncode}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
