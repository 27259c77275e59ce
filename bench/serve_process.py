# SPDX-License-Identifier: Apache-2.0
"""Servers as child processes, for soak.py, serve_against_llama.py and tests/server/clients.py: started, waited for, asked, and ended."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server that listens on loopback from __enter__ on, when its health path says 200; ended by SIGTERM."""

    def __init__(self, command: list, port: int, log: pathlib.Path, health: str = "/health", nice: int = 0,
                 environment: dict[str, str] | None = None):
        self.environment = {**os.environ, **(environment or {})}
        self.command, self.port, self.log, self.health, self.nice = [str(c) for c in command], port, log, health, nice
        self.url = f"http://127.0.0.1:{port}"
        self.process = None

    def __enter__(self) -> "Server":
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, env=self.environment,
                                            preexec_fn=lambda: os.nice(self.nice))
        self.wait_ready()
        return self

    def wait_ready(self, patience_s: float = 300) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.command[0]} ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
            try:
                self.get(self.health)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.end()
        raise SystemExit(f"{self.command[0]} was not ready after {patience_s} s:\n{self.log.read_text()[-2000:]}")

    def get(self, path: str, timeout_s: float = 30) -> str:
        with urllib.request.urlopen(self.url + path, timeout=timeout_s) as answer:
            return answer.read().decode()

    def metrics(self, tries: int = 5) -> dict[str, float]:
        """Every series of /metrics by its name with labels, as it is written there. A busy machine may need several tries."""
        for _ in range(tries - 1):
            try:
                return self.metrics(1)
            except OSError:
                time.sleep(1)
        lines = [line for line in self.get("/metrics").splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def resident_bytes(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, patience_s: float = 60) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __exit__(self, *_: object) -> None:
        self.end()


def bench_serve(program: pathlib.Path, url: str, options: list, nice: int = 0, patience_s: float | None = None) -> list[dict]:
    """Rows of `switchyard bench serve -o json`. A failed request is a row's business, not the end."""
    done = subprocess.run([str(program), "bench", "serve", url, *map(str, options), "-o", "json"], capture_output=True,
                          text=True, check=False, timeout=patience_s, preexec_fn=lambda: os.nice(nice))
    if done.returncode not in (0, 1) or not done.stdout.startswith("["):
        raise SystemExit(f"bench serve ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)
