# SPDX-License-Identifier: Apache-2.0
"""The commands of the exercises: each runs the program, and gives rows for the record.

A row is one JSON object: `exercise` (A to F), `part` (which table or figure it belongs to), then what the command printed
or what was counted in a recorded trace.
"""

import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess

import closed_forms
import swt

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = "models/demo"


@dataclasses.dataclass
class Sizes:
    """What a whole run measures, and what a quick one does to prove the pipeline."""
    layers: str = "demo,olmoe-1b-7b,qwen3-30b-a3b,deepseek-v3-ep8,mixtral-8x7b"
    two_batches: str = "32,256"
    plain_shape: str = "olmoe-1b-7b"
    plain_tokens: str = "32"
    phase_shapes: str = "mixtral-8x7b,olmoe-1b-7b,deepseek-v3-ep8"
    phase_tokens: str = "256"
    load_batches: tuple[int, ...] = (8, 32, 128, 512)
    capacity_shape: str = "olmoe-1b-7b"
    capacity_tokens: str = "256"
    capacities: tuple[float, ...] = (0, 1, 1.1, 1.25, 1.5, 1.75, 2)
    batch_shapes: str = "mixtral-8x7b,olmoe-1b-7b,demo"
    batches: str = "1,2,4,8,16,32,64,128,256,512"
    texts: int = 11       # held-out texts, one a topic
    trials: int = 200     # batches drawn from the trace for a mean
    repeats: str = "0"
    quick: bool = False
    device: str = "cpu"

    @staticmethod
    def on_device(device: str) -> "Sizes":
        """A, B and E of a GPU: no layer that fits its cache, and batches until products bind."""
        layers = "olmoe-1b-7b,qwen3-30b-a3b,deepseek-v3-ep8,mixtral-8x7b"
        return Sizes(layers=layers, two_batches="32,256,2048", phase_shapes=layers, phase_tokens="64,1024",
                     batch_shapes="mixtral-8x7b,qwen3-30b-a3b,olmoe-1b-7b",
                     batches="1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192", device=device)

    @staticmethod
    def quick_run(device: str = "cpu") -> "Sizes":
        small = "8/2x64x96" if device == "cpu" else "8/2x128x64"
        return Sizes(layers=f"{small},demo", two_batches="4,8", plain_shape=small, plain_tokens="4",
                     phase_shapes=small, phase_tokens="8", load_batches=(8, 32), capacity_shape=small,
                     capacity_tokens="16", capacities=(0, 1, 1.25, 2), batch_shapes=f"{small},demo", batches="1,4,16",
                     texts=2, trials=10, repeats="2", quick=True, device=device)


def short(command: str) -> str:
    """A row of options with every held-out text, as a shell would write it."""
    pattern = rf"(?:--(text|input) {DEMO}/held_out/\w+\.txt ){{3,}}"
    return re.sub(pattern, rf"$(printf -- '--\1 %s ' {DEMO}/held_out/*.txt) ", command)


class Runner:
    def __init__(self, program: pathlib.Path, work: pathlib.Path, sizes: Sizes) -> None:
        self.program, self.work, self.sizes = program, work, sizes
        self.commands: list[str] = []
        work.mkdir(parents=True, exist_ok=True)
        self.trace_file = work / "demo.swt"

    def run(self, arguments: list[str], environment: dict[str, str] | None = None) -> list[dict]:
        """The JSON lines that a command prints; a failing command ends the run with its last words."""
        setting = " ".join(f"{key}={value}" for key, value in (environment or {}).items())
        shown = [a.replace(f"{self.work}/", "") for a in arguments]
        self.commands.append(short(f"{setting} switchyard {' '.join(shown)}".strip()))
        done = subprocess.run([str(self.program), *arguments], capture_output=True, text=True, check=False, cwd=ROOT,
                              env={**os.environ, **(environment or {})})
        if done.returncode != 0:
            raise SystemExit(f"{self.commands[-1]}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def ceilings(self) -> dict:
        file = self.work / "ceilings.json"
        file.unlink(missing_ok=True)
        self.bench("--shape", "8/2x128x64", "--tokens", "1", repeats="1")
        return json.loads(file.read_text())

    def bench(self, *arguments: str, repeats: str | None = None, environment: dict[str, str] | None = None) -> list[dict]:
        device = [] if self.sizes.device == "cpu" else ["--device", self.sizes.device]
        return self.run(["bench", "moe", *device, *arguments, "-r", repeats or self.sizes.repeats, "--ceilings",
                         str(self.work / "ceilings.json"), "-o", "jsonl"], environment)

    def texts(self) -> list[str]:
        return [f"{DEMO}/held_out/{file.name}"
                for file in sorted((ROOT / DEMO / "held_out").glob("*.txt"))[:self.sizes.texts]]

    def trace(self) -> swt.Trace:
        """The demonstration model's real routing of held-out text, recorded once."""
        if not self.trace_file.exists():
            texts = [word for text in self.texts() for word in ("--text", text)]
            self.run(["record", DEMO, "-q", *texts, "--picks", "--prefill-only", "-o", str(self.trace_file)])
        return swt.read(self.trace_file)


def tag(rows: list[dict], exercise: str, part: str, **more) -> list[dict]:
    return [{"exercise": exercise, "part": part, **more, **row} for row in rows]


def exercise_a(runner: Runner) -> list[dict]:
    """Grouped against naive, for experts few and many."""
    sizes = runner.sizes
    rows = tag(runner.bench("--shape", sizes.layers, "--tokens", sizes.two_batches, "--kernel", "grouped,naive,padded"),
               "A", "ways")
    if sizes.device != "cpu":
        return rows
    # The same grouped call with products as one writes them first: unpacked weights, a dot product an output.
    plain = runner.bench("--shape", sizes.plain_shape, "--tokens", sizes.plain_tokens, "--layers", "1", repeats="5",
                         environment={"SWITCHYARD_KERNEL": "grouped_gemm=naive"})
    return rows + tag(plain, "A", "plain products")


def exercise_b(runner: Runner) -> list[dict]:
    """Time by phase; one rank, so no communication: that is predicted."""
    sizes = runner.sizes
    return tag(runner.bench("--shape", sizes.phase_shapes, "--tokens", sizes.phase_tokens, "--kernel", "grouped,naive",
                            "--phases"), "B", "phases")


def load_of(picks: list[tuple[int, ...]], experts: int) -> list[int]:
    load = [0] * experts
    for token in picks:
        for expert in token:
            if expert != swt.DROPPED:
                load[expert] += 1
    return load


def exercise_c(runner: Runner) -> list[dict]:
    """Loads of the real router, in batches of one text and of all texts, beside drawn routing."""
    sizes, trace = runner.sizes, runner.trace()
    rows: list[dict] = []
    generator = random.Random(1)
    topics = trace.token_topics()
    tokens_of = {topic: [i for i, t in enumerate(topics) if t == topic] for topic in sorted(set(topics))}
    for layer in range(trace.layers):
        picks = trace.token_picks(layer)
        rows.append({"exercise": "C", "part": "loads", "layer": layer, "loads": trace.loads(layer)})
        by_topic = {trace.topics[t]: load_of([picks[i] for i in at], trace.experts) for t, at in tokens_of.items()}
        rows.append({"exercise": "C", "part": "loads by topic", "layer": layer, "loads": by_topic})
        for batch in sizes.load_batches:
            for mix in ("one text", "all texts"):
                found = [batch_load(picks, tokens_of, batch, mix, generator, trace.experts)
                         for _ in range(sizes.trials)]
                rows.append({"exercise": "C", "part": "real", "layer": layer, "tokens": batch, "mix": mix,
                             "experts_touched": mean([sum(n > 0 for n in load) for load in found]),
                             "imbalance": mean([max(load) * len(load) / sum(load) for load in found])})
    # What the program draws, at the size of the model.
    drawn = runner.bench("--shape", "demo", "--tokens", ",".join(map(str, sizes.load_batches)), "--routing",
                         f"uniform,zipf:0.3,zipf:1,trace:{runner.trace_file},trace-mixed:{runner.trace_file}")
    for row in drawn:
        row["routing"] = row["routing"].split(":/")[0]
    return rows + tag(drawn, "C", "drawn")


def batch_load(picks: list, tokens_of: dict, batch: int, mix: str, generator: random.Random, experts: int) -> list[int]:
    """Loads of a batch of different tokens: of one text, or of any."""
    if mix == "one text":
        pool = tokens_of[generator.choice(list(tokens_of))]
        chosen = generator.sample(pool, min(batch, len(pool)))
    else:
        chosen = generator.sample(range(len(picks)), batch)
    return load_of([picks[i] for i in chosen], experts)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def exercise_d(runner: Runner) -> list[dict]:
    """Capacity: speed and drops of a layer, then perplexity of the model. The last factor is what the rule gives when it is
    read without k: c T / E instead of c k T / E."""
    sizes = runner.sizes
    runner.trace()
    factors = ",".join(f"{c:g}" for c in sizes.capacities)
    rows = tag(runner.bench("--shape", sizes.capacity_shape, "--tokens", sizes.capacity_tokens, "--capacity", factors,
                            "--kernel", "grouped,padded", "--routing", "uniform,zipf:0.3,zipf:0.6"), "D", "speed")
    real = runner.bench("--shape", "demo", "--tokens", "512" if not sizes.quick else "32", "--capacity", factors,
                        "--kernel", "grouped,padded", "--routing", f"trace-mixed:{runner.trace_file}")
    rows += tag(real, "D", "speed, real routing", note="demo")
    without_k = 1.25 / runner.trace().top_k
    texts = [word for text in runner.texts() for word in ("--input", text)]
    quality = runner.run(["bench", "quality", DEMO, "-q", *texts, "--capacity", f"{factors},{without_k:g}", "-o",
                          "jsonl"])
    return rows + tag(quality, "D", "quality")


def exercise_e(runner: Runner) -> list[dict]:
    sizes = runner.sizes
    return tag(runner.bench("--shape", sizes.batch_shapes, "--tokens", sizes.batches), "E", "batch")


def rank_imbalance(loads: list[float], placed: list[list[int]]) -> float:
    sums = [sum(loads[i] for i in rank) for rank in placed]
    return max(sums) * len(sums) / sum(sums)


def replicate(loads: list[float], hottest: list[int]) -> list[float]:
    """Loads of slots: each of the hottest split over two."""
    return [load / 2 if i in hottest else load for i, load in enumerate(loads)] + [loads[i] / 2 for i in hottest]


def placements(loads: list[float], ranks: int, generator: random.Random) -> dict[str, float]:
    """Busiest rank over mean: experts in order, at random, dealt by load, and with copies of the three hottest."""
    experts = len(loads)
    slots = experts // ranks
    order = list(range(experts))
    shuffled = []
    for _ in range(100):
        generator.shuffle(order)
        shuffled.append(rank_imbalance(loads, [order[r * slots:(r + 1) * slots] for r in range(ranks)]))
    hottest = sorted(range(experts), key=lambda i: -loads[i])[:3]
    split = replicate(loads, hottest)
    more = -(-len(split) // ranks)
    return {"in order": rank_imbalance(loads, [list(range(r * slots, (r + 1) * slots)) for r in range(ranks)]),
            "random": mean(shuffled),
            "by load": rank_imbalance(loads, closed_forms.longest_first(loads, ranks, slots)),
            "by load, 3 copies": rank_imbalance(split, closed_forms.longest_first(split, ranks, more))}


def plan_rows(runner: Runner, ranks: int, copies: int) -> list[dict]:
    """The program's own policies: placed from the first half of the recording, judged by the second."""
    plan = runner.run(["plan", str(runner.trace_file), "--ranks", str(ranks), "--replicas", str(copies), "--json"])[0]
    return [{"exercise": "F", "part": "plan", "ranks": ranks, "copies": copies, "policy": policy["policy"],
             "planned": mean(policy["planned_rank_imbalance"]), "later": policy["rank_imbalance"]["mean"],
             "gain": policy["gain"], "memory": policy["memory_ratio"]}
            for policy in plan["policies"] if "refused" not in policy]


def exercise_f(runner: Runner) -> list[dict]:
    """Copies of the three hottest experts, on loads of the real router and on those of Zipf popularity."""
    generator = random.Random(2)
    trace = runner.trace()
    rows = []
    topics = trace.token_topics()
    for layer in range(trace.layers):
        loads = [float(n) for n in trace.loads(layer)]
        picks = trace.token_picks(layer)
        first = [picks[i] for i, t in enumerate(topics) if t == 0]
        alone = [float(n) for n in load_of(first, trace.experts)]
        for mix, values in (("all texts", loads), (f"{trace.topics[0]} alone", alone)):
            for ranks in (4, 8):
                rows.append({"exercise": "F", "part": "real", "layer": layer, "ranks": ranks, "mix": mix,
                             "experts": trace.experts, **placements(values, ranks, generator)})
    rows += plan_rows(runner, ranks=8, copies=3)
    for experts, k, ranks in ((8, 2, 4), (64, 8, 8), (256, 8, 32)):
        for exponent in (0.3, 0.6, 1.0):
            loads = closed_forms.inclusion(closed_forms.zipf_weights(experts, exponent), k)
            generator.shuffle(loads)
            rows.append({"exercise": "F", "part": "zipf", "experts": experts, "k": k, "ranks": ranks,
                         "exponent": exponent, **placements(loads, ranks, generator)})
    return rows


# D predicts the drops of the real router from what C counted.
NEEDS = {"D": "C"}
ON_DEVICE = "ABE"  # what a device other than the CPU measures; the others are about routing, which is the same
EXERCISES = {"A": exercise_a, "B": exercise_b, "C": exercise_c, "D": exercise_d, "E": exercise_e, "F": exercise_f}
