#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens the dashboard of a running server in headless Chromium and holds it against the server's own numbers.

    tests/server/dashboard_test.py PROGRAM OUT [--model models/demo] [--chromium /usr/bin/chromium]

Needs playwright from PyPI and a Chromium: `make dashboard-test` sees to both. Light, dark and 360 pixels wide: no error in
the console, no request to another host, no sideways scrolling, colours with enough contrast, nothing that axe-core finds
fault with, every layer's numbers equal to /v1/moe/stats. Screenshots go to OUT. Ends with 1 at the first check that fails.
"""

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import axe_playwright_python
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "key-of-the-dashboard-test"
PROMPTS = ["The kernel provides", "Was macht der Befehl ls?", "def main():", "In the beginning", "template <class T>", "What is a river?"]
LAYERS = """() => [...document.querySelectorAll('#layers tbody tr')].map(tr => [...tr.cells].map(td => td.textContent))"""


def check(condition, what: str) -> None:
    if not condition:
        raise SystemExit(f"dashboard: FAILED: {what}")
    print(f"dashboard: {what}")


class Server:
    """The program on a free port; requests carry the key."""

    def __init__(self, program: str, model: str, extra: list[str]):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--api-key", KEY, *extra],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"serving on (http://\S+)", line):
                self.url = found[1]
                break
        else:
            raise SystemExit("dashboard: the server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, path: str, body: dict | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as answer:
            return answer.read()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


class Load:
    """Clients that ask one after the other until stop()."""

    def __init__(self, server: Server, clients: int):
        self.server, self.going = server, True
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client: int) -> None:
        number = client
        while self.going:
            self.server.ask("/v1/completions", {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": 40, "ignore_eos": True, "seed": number})
            number += 7

    def stop(self) -> None:
        self.going = False
        for thread in self.threads:
            thread.join()


def contrast(page) -> dict[str, float]:
    """WCAG contrast of the texts' colours on both grounds."""
    return page.evaluate("""() => {
      const style = getComputedStyle(document.documentElement);
      const light = (name) => {
        const hex = style.getPropertyValue(name).trim();
        const part = (i) => { const c = parseInt(hex.slice(i, i + 2), 16) / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
        return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
      };
      const found = {};
      for (const text of ['--text', '--quiet', '--bad', '--accent']) for (const ground of ['--page', '--panel']) {
        const [low, high] = [light(text), light(ground)].sort((a, b) => a - b);
        found[`${text} on ${ground}`] = (high + 0.05) / (low + 0.05);
      }
      return found;
    }""")


class Visitor:
    """A page with what it asked for and what its console said."""

    def __init__(self, browser, server: Server, width: int, height: int, scheme: str, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        self.page, self.name, self.server = context.new_page(), f"{scheme} {width}", server
        self.console, self.requests = [], []
        self.page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.console.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(server.url + "/")

    def unlock(self) -> None:
        self.page.wait_for_selector("#locked:not([hidden])")
        self.page.fill("#key", "wrong-key")
        self.page.click("#locked button")
        self.page.wait_for_function("() => document.getElementById('wrong').textContent !== ''")
        self.page.fill("#key", KEY)
        self.page.click("#locked button")

    def wait_answers(self, count: int) -> None:
        self.page.wait_for_function("(count) => Number(document.body.dataset.answers ?? 0) >= count", arg=count, timeout=60_000)

    def check_manners(self) -> None:
        # Before the key was known, the browser itself notes each refused request; nothing else may be there.
        noise = [line for line in self.console if "401 (Unauthorized)" not in line]
        check(not noise, f"{self.name}: the console is silent {noise}")
        foreign = [url for url in self.requests if not url.startswith((self.server.url, "data:"))]
        check(not foreign, f"{self.name}: {len(self.requests)} requests, all to this server {foreign}")
        wide = self.page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        check(wide <= 0, f"{self.name}: no sideways scrolling ({wide} px over)")
        low = {pair: round(value, 1) for pair, value in contrast(self.page).items() if value < 4.5}
        check(not low, f"{self.name}: contrast of texts at least 4.5 {low}")


def check_numbers(visitor: Visitor, server: Server) -> None:
    """At rest, since start: the page's table is the server's answer."""
    page = visitor.page
    page.click("#window label:nth-of-type(3)")
    page.evaluate("() => { document.getElementById('layers-detail').open = true; }")
    answers = int(page.evaluate("() => document.body.dataset.answers"))
    visitor.wait_answers(answers + 2)
    rows, stats = page.evaluate(LAYERS), json.loads(server.ask("/v1/moe/stats"))
    check(len(rows) == len(stats["layers"]), f"{visitor.name}: {len(rows)} layers in the table")
    for row, layer in zip(rows, stats["layers"]):
        load = layer["load"]
        hottest = load.index(max(load))
        expected = [str(layer["moe_layer"]), str(sum(load)), f"{layer['imbalance']:.2f}", f"{layer['experts_touched']:.1f}", f"expert {hottest}"]
        check(row[:5] == expected, f"{visitor.name}: layer {row[0]}: {row[:5]} of {expected}")
        check(row[6] == str(load.count(0)) and row[7] == str(layer["dropped"]), f"{visitor.name}: layer {row[0]}: idle and dropped {row[6:]}")
    text = server.ask("/metrics").decode()
    finished = int(re.search(r'requests_finished_total\{finish_reason="length"\} (\d+)', text)[1])
    shown = page.evaluate("() => Object.fromEntries([...document.querySelectorAll('#ends tr')].map(tr => [tr.cells[0].textContent, tr.cells[1].textContent]))")
    check(finished < 10_000 and shown["finished: length"] == str(finished), f"{visitor.name}: {finished} requests finished, shown {shown}")
    mean = sum(layer["imbalance"] for layer in stats["layers"]) / len(stats["layers"])
    check(page.inner_text("#imbalance-mean") == f"{mean:.2f}", f"{visitor.name}: mean imbalance {mean:.2f}")
    phases = page.evaluate("() => [...document.querySelectorAll('#phases tbody tr')].map(tr => tr.cells[0].textContent)")
    slowest = max(stats["phases"], key=lambda phase: phase["seconds"])["name"].replace("_", " ")
    check(slowest in phases[:2], f"{visitor.name}: the longest phase is {slowest}, shown first {phases[:2]}")


def check_keyboard(visitor: Visitor) -> None:
    visitor.page.focus("#heat")
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.keyboard.press("ArrowDown")
    text = visitor.page.inner_text("#heat-text")
    check(text.startswith("Layer 1, expert 0:"), f"{visitor.name}: the arrow keys choose a cell: {text[:40]}")


def visit(browser, server: Server, out: pathlib.Path) -> None:
    load = Load(server, 6)
    sizes = [(1280, 900, "light"), (1280, 900, "dark"), (360, 740, "light"), (360, 740, "dark")]
    visitors = [Visitor(browser, server, *size) for size in sizes]
    try:
        visitors[0].page.screenshot(path=out / "locked.png")
        for visitor in visitors:
            visitor.unlock()
        for visitor in visitors:
            visitor.wait_answers(20)
            check_keyboard(visitor)
            visitor.page.screenshot(path=out / f"{visitor.name.replace(' ', '-')}.png", full_page=True)
    finally:
        load.stop()
    for visitor in visitors:
        check_numbers(visitor, server)
        visitor.check_manners()
    visitors[0].page.screenshot(path=out / "since-start.png", full_page=True)
    check_between(visitors[0])
    check_rest(visitors[0])
    check_rest(visitors[3])
    rate = visitors[0].page.inner_text("#output-rate")
    check(rate == "0", f"at rest the output is 0 tokens a second: {rate}")


def check_axe(browser, server: Server) -> None:
    """The rules of axe-core, in a context that lets it in; both with the form for a key and with everything shown."""
    script = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    for width, height, scheme in ((1280, 900, "light"), (360, 740, "dark")):
        visitor = Visitor(browser, server, width, height, scheme, bypass_csp=True)
        visitor.page.wait_for_selector("#locked:not([hidden])")
        for state in ("locked", "open"):
            if state == "open":
                visitor.unlock()
                visitor.page.evaluate("() => { document.getElementById('layers-detail').open = true; }")
                visitor.wait_answers(3)
            visitor.page.add_script_tag(content=script)
            faults = visitor.page.evaluate("async () => (await axe.run(document)).violations.map((v) => [v.id, v.nodes[0].html])")
            check(not faults, f"{visitor.name}, {state}: axe-core finds no fault {faults}")


BETWEEN = """async () => {
  const { layersBetween, History } = await import('/dashboard/data.js');
  const layer = (steps, imbalance) => ({ steps, imbalance, experts_touched: 2, assignments: 10 * steps, dropped: 0, load: [5 * steps, 5 * steps] });
  // A thousand steps of 8, then some of 1.3; the last one still runs, so that its layer has it and the engine not yet.
  const after = (count) => ({ steps: 1000 + count - 1, layers: [layer(1000 + count, (8000 + 1.3 * count) / (1000 + count))] });
  const idle = { steps: 1000, layers: [layer(1000, 8)] };
  const history = new History();
  history.add({ time: 1, stats: { start_time: 1, steps: 5 } });
  history.addPoint({ time: 1, output: 3 });
  history.addGap(2);
  const gap = history.points[1];
  history.add({ time: 3, stats: { start_time: 2, steps: 50 } });
  return { running: layersBetween(after(3), idle)[0].imbalance, first: layersBetween(after(1), idle)[0].imbalance,
    none: layersBetween(idle, idle)[0].imbalance, gap: Number.isNaN(gap.output) && gap.time === 2, kept: history.snapshots.length };
}"""


def check_between(visitor: Visitor) -> None:
    found = visitor.page.evaluate(BETWEEN)
    check(abs(found["running"] - 1.3) < 1e-9 and abs(found["first"] - 1.3) < 1e-9, f"imbalance between two answers, the last in mid step: {found}")
    check(found["none"] != found["none"], "without a step there is no imbalance")
    check(found["gap"], "an answer that did not come is a gap")
    check(found["kept"] == 1, "another server's answers begin anew, whatever its counters say")


def check_touch(browser, server: Server) -> None:
    visitor = Visitor(browser, server, 360, 740, "light", has_touch=True)
    visitor.unlock()
    visitor.wait_answers(2)
    visitor.page.tap("#heat", position={"x": 60, "y": 4})
    text = visitor.page.inner_text("#heat-text")
    check(text.startswith("Layer 0, expert "), f"a finger chooses a cell: {text[:40]}")


def check_rest(visitor: Visitor) -> None:
    """An idle server has no cold experts: cells without colour, and a choice says so."""
    page = visitor.page
    page.click("#window label:nth-of-type(1)")
    page.wait_for_function("() => document.getElementById('phase-note').textContent === 'no step in this time'", timeout=30_000)
    colour, track = page.evaluate("""() => {
      const canvas = document.getElementById('heat'), scale = canvas.width / canvas.clientWidth;
      const [r, g, b] = canvas.getContext('2d').getImageData(Math.round(40 * scale), Math.round(3 * scale), 1, 1).data;
      const hex = (part) => part.toString(16).padStart(2, '0');
      return [`#${hex(r)}${hex(g)}${hex(b)}`, getComputedStyle(canvas).getPropertyValue('--track').trim()];
    }""")
    check(colour == track, f"{visitor.name}: at rest the map is {colour}, the colour of nothing is {track}")
    check(page.inner_text("#imbalance-worst") == "–", f"{visitor.name}: at rest there is no imbalance")


def check_frozen(browser, server: Server) -> None:
    """A server that holds the connection and says nothing."""
    visitor = Visitor(browser, server, 1280, 900, "light")
    visitor.unlock()
    visitor.wait_answers(2)
    server.process.send_signal(signal.SIGSTOP)
    try:
        visitor.page.wait_for_selector("#state[data-state='unreachable']", timeout=20_000)
        visitor.page.wait_for_function("() => document.getElementById('age').textContent.startsWith('last answer')", timeout=20_000)
        check(visitor.page.evaluate("() => document.getElementById('view').classList.contains('old')"), "a stopped server: the numbers look old")
    finally:
        server.process.send_signal(signal.SIGCONT)
    visitor.page.wait_for_selector("#state[data-state='ready']", timeout=20_000)
    check(not visitor.page.evaluate("() => document.getElementById('view').classList.contains('old')"), "it goes on when the server does")


def check_end(browser, server: Server) -> None:
    visitor = Visitor(browser, server, 1280, 900, "light")
    visitor.unlock()
    visitor.wait_answers(2)
    check(server.stop() == 0, "the server ends with 0")
    visitor.page.wait_for_selector("#state[data-state='unreachable'], #state[data-state='draining']", timeout=20_000)
    check(True, "the page says that the server has gone")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="more options of the server")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    server = Server(arguments.program, arguments.model, arguments.extra)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
            visit(browser, server, arguments.out)
            check_axe(browser, server)
            check_touch(browser, server)
            check_frozen(browser, server)
            check_end(browser, server)
            browser.close()
    finally:
        if server.process.poll() is None:
            server.process.kill()
    print("dashboard: all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
