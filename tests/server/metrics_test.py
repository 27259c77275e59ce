#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A scrape of the running program against everything that names its metrics.

    tests/server/metrics_test.py PROGRAM

Every metric that docs/metrics.md lists is in the scrape with that type and those labels, and the other way round; every
metric that the Grafana dashboard and the alerts name is there; every PromQL expression parses; promtool finds no fault with
the scrape, the configuration and the rules; Prometheus' own Python parser reads it, where that is installed. The server's log is
JSON, line by line, without prompt and key. Ends with 77 (skipped) when promtool is missing.
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "key-of-the-metrics-test"
OPTIONS = ["--metrics-expert-detail", "top-4", "--metrics-compat", "vllm", "--capacity-factor", "1", "--open-metrics",
           "--log-format", "json"]
# Suffixes of histograms, and what PromQL itself brings.
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def fail(text: str) -> None:
    raise SystemExit(f"metrics: FAILED: {text}")


class Server:
    def __init__(self, program: str):
        self.log = []
        command = [program, "serve", str(ROOT / "models/demo"), "--port", "0", "--threads", "1", "--api-key", KEY, *OPTIONS]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"serving on http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                return
        fail("the server did not start")

    def ask(self, path: str, body: dict | None = None, key: str = KEY) -> str:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def leave_early(self) -> None:
        """A client that goes when its stream has begun."""
        body = json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True})
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            client.recv(1)

    def scrape(self) -> str:
        """After a bit of everything."""
        self.ask("/v1/completions", {"prompt": "The kernel provides", "max_tokens": 8})
        self.leave_early()
        try:
            self.ask("/v1/models", key="wrong")
            fail("a wrong key was taken")
        except urllib.error.HTTPError as refusal:
            refusal.close()
        for _ in range(200):
            text = self.ask("/metrics")
            if re.search(r"^switchyard_client_disconnects_total\{.*\} [1-9]", text, re.M):
                return text
            time.sleep(0.05)
        fail("the client that left was not noticed")

    def stop(self) -> None:
        self.process.terminate()
        self.log += self.process.stderr.readlines()
        self.process.wait(60)


def families_of(text: str) -> dict[str, tuple[str, set[str]]]:
    """Name -> type and labels."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    families = {name: (kind, set()) for name, kind in types.items()}
    for name, labels in re.findall(r"^([a-zA-Z_:][\w:]*)(\{.*\})? \S+$", text, re.M):
        family = name if name in types else SUFFIX.sub("", name)
        if family not in families:
            fail(f"{name} has no TYPE")
        families[family][1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return families


def documented() -> dict[str, tuple[str, set[str]]]:
    """The table of docs/metrics.md, "All metrics of a server": name, type, labels."""
    text = (ROOT / "docs/metrics.md").read_text()
    table = text[text.index("## All metrics of a server"):]
    rows = re.findall(r"^\| `((?:switchyard|process)_\w+)` \| (\w+) \| ([^|]*) \|", table, re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def grafana_expressions() -> list[str]:
    board = json.loads((ROOT / "deploy/grafana/switchyard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    if len(ids) != len(set(ids)):
        fail("two panels of the Grafana dashboard have the same id")
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [e.replace("$__rate_interval", "5m").replace("$instance", ".*") for e in expressions]


def alert_expressions() -> list[str]:
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    found = re.findall(r"^( +)expr: (?:\|\n((?:\1 +.*\n)+)|(.+))", text, re.M)
    if len(found) != text.count("- alert:"):
        fail("not every alert's expression was found")
    return [block or line for _, block, line in found]


def promtool(*arguments: str, text: str | None = None) -> None:
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True)
    if done.returncode != 0 or "lint" in done.stderr:
        fail(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")
    print(f"metrics: promtool {' '.join(arguments)}")


def check_promql(expressions: list[str]) -> None:
    rules = [{"record": f"expression_{i}", "expr": e} for i, e in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "grafana", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        promtool("check", "rules", file.name)


def check_names(families: dict, where: str, text: str) -> None:
    names = set(re.findall(r"\bswitchyard_\w+", text))
    unknown = {n for n in names if n not in families and SUFFIX.sub("", n) not in families}
    if unknown or not names:
        fail(f"{where}: not in a scrape: {sorted(unknown)}")
    print(f"metrics: {len(names)} names of {where} are in the scrape")


def values_of(text: str) -> dict[tuple[str, str], set[str]]:
    """Family and label -> the label's values."""
    values = {}
    for name, labels in re.findall(r"^([a-zA-Z_:][\w:]*)\{(.*)\} \S+$", text, re.M):
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            values.setdefault((SUFFIX.sub("", name), label), set()).add(value)
            values.setdefault((name, label), set()).add(value)
    return values


def check_labels(where: str, expressions: list[str], text: str) -> None:
    """Labels that an expression selects or groups by are those of a metric that it names, and so are the values."""
    known = {"instance", "job", "le"}
    values = values_of(text)
    for expression in expressions:
        names = set(re.findall(r"\bswitchyard_\w+", expression))
        has = known | {label for name, label in values if name in names}
        groups = {label.strip() for inside in re.findall(r"\b(?:by|on|without|group_left) ?\(([^)]*)\)", expression) for label in inside.split(",")} - {""}
        if groups - has:
            fail(f"{where}: {sorted(groups - has)} of '{expression}' are no labels of {sorted(names)}")
        for name, selectors in re.findall(r"\b(switchyard_\w+)\{([^}]*)\}", expression):
            for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selectors):
                if label in known:
                    continue
                unknown = set(value.split("|") if operator == "=~" else [value]) - values.get((name, label), set())
                if unknown:
                    fail(f"{where}: {name} has no {label} {sorted(unknown)}: {expression}")
    print(f"metrics: labels and their values in {len(expressions)} expressions of {where} are in the scrape")


def check_parser(text: str) -> None:
    sys.path.append("/usr/lib/python3/dist-packages")  # Debian's, should this be another Python
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("metrics: python3-prometheus-client is not installed: its parser was not asked")
        return
    samples = sum(len(family.samples) for family in text_string_to_metric_families(text))
    lines = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    if samples != lines:
        fail(f"Prometheus' Python parser reads {samples} samples of {lines}")
    print(f"metrics: Prometheus' Python parser reads all {samples} samples")


def check_log(lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    kinds = [record["kind"] for record in records]
    if "message" not in kinds or not {"id", "route", "status", "total_ms"} <= records[kinds.index("request")].keys():
        fail(f"the log is not as documented: {lines[:3]}")
    codes = {record.get("error") for record in records}
    if "invalid_api_key" not in codes or any(KEY in line or "kernel provides" in line for line in lines):
        fail("the log misses the refusal, or has a key or a prompt")
    print(f"metrics: {len(records)} lines of the log are JSON, {kinds.count('request')} of them requests")


def check_refused(program: str) -> None:
    for value in ("top-0", "top-", "top-x", "all", "top-8x", ""):
        done = subprocess.run([program, "serve", "models/none", "--metrics-expert-detail", value], capture_output=True, text=True)
        if done.returncode != 2 or "top-N" not in done.stderr:
            fail(f"--metrics-expert-detail '{value}': code {done.returncode}, {done.stderr}")


def main() -> int:
    check_refused(sys.argv[1])
    server = Server(sys.argv[1])
    try:
        text = server.scrape()
    finally:
        server.stop()
    check_log(server.log)
    families = families_of(text)
    ours = {name: facts for name, facts in families.items() if name.startswith(("switchyard_", "process_"))}
    known = documented()
    if known != ours:
        wrong = [f"{n}: documented {known.get(n)}, scraped {ours.get(n)}" for n in sorted(known.keys() | ours.keys()) if known.get(n) != ours.get(n)]
        fail("docs/metrics.md and a scrape differ:\n" + "\n".join(wrong))
    print(f"metrics: {len(ours)} families as documented, {len(families) - len(ours)} more under vLLM's names")
    grafana = grafana_expressions()
    check_names(families, "deploy/grafana", " ".join(grafana))
    check_names(families, "deploy/prometheus", (ROOT / "deploy/prometheus/alerts.yml").read_text())
    check_labels("deploy/grafana", grafana, text)
    check_labels("deploy/prometheus", alert_expressions(), text)
    check_parser(text)
    if shutil.which("promtool") is None:
        print("metrics: skipped: promtool is not installed")
        return 77
    promtool("check", "metrics", text=re.sub(r"^.*\bvllm:.*\n", "", text, flags=re.M))
    check_promql(grafana)
    for kind, name in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        promtool("check", kind, str(ROOT / "deploy/prometheus" / name))
    promtool("test", "rules", str(ROOT / "deploy/prometheus/alerts_test.yml"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
