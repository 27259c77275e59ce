#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the peers of our CUDA MoE layer, whole layers from given logits, and prints a row a peer and cell.

    bench/baselines/gpu_layer_peers.py [--jsonl FILE] [--peers FOLDER] [--shape NAME,...] [--tokens T,...] [--only TEXT]
                                       [--peak-tflops P] [--processes N]

Shapes, loads and timing are those of bench/gpu_moe.cu, and the rows have the keys of its record, so that
bench/gpu_report.py joins both; run the two in turn on the same machine. FOLDER (default $SWITCHYARD_PEERS/gpu) is what
setup_gpu_peers.sh made; peers that are missing there are left out, and the last lines say so.

Each configuration of a peer is checked against the layer in fp32 before it is timed; a wrong one is told, never timed,
and makes the program fail. `config` says which one won, `tried` how long each took in a short first round; `us` is the
better of that and of a full round.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_peers import deep_gemm, glue, layer, stock, timing, vllm_triton  # noqa: E402

MOST_ERROR = 1e-2  # bf16 with an intermediate in bf16 stands near 5e-3
BEGIN = time.monotonic()


def parse() -> argparse.Namespace:
    default = pathlib.Path(os.environ.get("SWITCHYARD_PEERS", pathlib.Path.home() / ".cache/switchyard-peers")) / "gpu"
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jsonl", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path, default=default)
    parser.add_argument("--shape", default="", help="names of shapes, by commas; all")
    parser.add_argument("--tokens", default="", help="numbers of tokens, by commas; all")
    parser.add_argument("--only", default="", help="peers whose name holds this text")
    parser.add_argument("--peak-tflops", type=float, default=802)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    return parser.parse_args()


def open_peers(options: argparse.Namespace) -> dict:
    """The modules of the optional peers that are there."""
    found = {}
    if (options.peers / "vllm/fused_moe.py").exists():
        found["vllm"] = vllm_triton.load(options.peers / "vllm")
    else:
        print(f"vllm: left out: no {options.peers}/vllm/fused_moe.py", flush=True)
    module = deep_gemm.load(options.peers / "deep_gemm")
    if module is not None:
        found["deep_gemm"] = module
    return found


def compile_ahead(found: dict, options: argparse.Namespace, shapes, loads) -> None:
    """Both libraries at once; their caches may be filled already, and then this takes seconds."""
    started, each = [], options.processes
    if "vllm" in found:
        count, processes = vllm_triton.compile_ahead(found["vllm"], shapes, loads, each)
        started += processes
        print(f"vllm: {count} launches to compile or find", flush=True)
    if "deep_gemm" in found:
        started += deep_gemm.compile_ahead(options.peers / "deep_gemm", shapes, loads, each)
    for process in started:
        process.join(240)
        if process.is_alive():
            process.terminate()
    print(f"compiled [{time.monotonic() - BEGIN:.0f} s]", flush=True)


def peers_of(found: dict, cell: layer.Cell) -> list[tuple[str, dict]]:
    """Name and configurations of each peer for a cell: what to write as config -> what to run."""
    rows = cell.routed.picks / cell.shape.experts
    peers = [("peer.naive_loop", {"eager": lambda i: stock.naive_loop(cell, i)}),
             ("peer.grouped_mm.stock", {"": lambda i: stock.grouped_mm_stock(cell, i)}),
             ("peer.grouped_mm.glue", {"": lambda i: stock.grouped_mm_glue(cell, i)})]
    if "vllm" in found:
        run = lambda config: lambda i: vllm_triton.run(found["vllm"], cell, config, i)
        config, origin = vllm_triton.shipped(found["vllm"], cell.shape, cell.tokens)
        peers.append(("peer.vllm_triton.shipped", {f"{origin} {config}": run(config)}))
        peers.append(("peer.vllm_triton.tuned", {str(c): run(c) for c in vllm_triton.candidates(rows)}))
    if "deep_gemm" in found:
        run_dg = lambda config: lambda i: deep_gemm.run(found["deep_gemm"], cell, config, i)
        peers.append(("peer.deep_gemm.glue", {str(c): run_dg(c) for c in deep_gemm.candidates(rows)}))
    return peers


class Record:
    def __init__(self, options: argparse.Namespace):
        self.options, self.wrong, self.left_out, self.missing = options, [], [], []
        self.file = open(options.jsonl, "w") if options.jsonl else None
        source = torch.empty(glue.READ_BYTES, dtype=torch.uint8, device="cuda").random_()
        sink = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.read_tbs = glue.READ_BYTES / timing.graph_us(lambda i: glue.read(source, sink), 2) / 1e6
        self.device = torch.cuda.get_device_name()
        print(f"{self.device}, torch {torch.__version__}; read bandwidth {self.read_tbs:.3f} TB/s", flush=True)

    def write(self, cell: layer.Cell, entry: str, us: float, error: float, config: str, tried: dict) -> None:
        row = {"bench": "gpu_moe", "device": self.device, "shape": cell.shape.name, "tokens": cell.tokens,
               "zipf": cell.zipf, "entry": entry, "us": round(us, 2)}
        row |= {key: round(value, 2) for key, value in
                cell.floor(self.read_tbs, self.options.peak_tflops).items()}
        row |= {"hits": round(cell.hits, 2), "read_tbs": round(self.read_tbs, 3), "error": float(f"{error:.2e}"),
                "config": config}
        if len(tried) > 1:
            row["tried"] = {name: round(value, 1) for name, value in tried.items()}
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)


def measure(record: Record, cell: layer.Cell, entry: str, configs: dict) -> str:
    """Checks and times a peer's configurations; writes the best one's row and returns what to print of it."""
    tried, errors = {}, {}
    for name, run in configs.items():
        where = f"{cell.shape.name} {cell.tokens} {entry} {name}"
        try:
            errors[name] = cell.error(run)
            if not errors[name] < MOST_ERROR:
                record.wrong.append(f"{where}: error {errors[name]:.3e}")
                continue
            short = len(configs) > 1
            tried[name] = (timing.eager_us(run, cell.num_inputs) if name == "eager" else
                           timing.graph_us(run, cell.num_inputs, 15e3 if short else 60e3, 2 if short else 5))
        except Exception as error:
            record.left_out.append(f"{where}: {type(error).__name__}: {str(error)[:160]}")
    if not tried:
        record.missing.append(f"{cell.shape.name} {cell.tokens} {entry}")
        return f"{entry} -"
    best = min(tried, key=tried.get)
    us = tried[best]
    if len(configs) > 1:  # a longer round may find the card at its power limit; the peer has the better of both
        us = min(us, timing.graph_us(configs[best], cell.num_inputs))
    record.write(cell, entry, us, errors[best], best, tried)
    return f"{entry.removeprefix('peer.')} {us:.1f}"


def main() -> int:
    options = parse()
    os.environ.setdefault("TRITON_CACHE_DIR", str(options.peers / "triton_cache"))
    torch.backends.cuda.matmul.allow_tf32 = False
    glue.load(options.peers)
    wanted = options.shape.split(",") if options.shape else [s.name for s in layer.SHAPES]
    tokens = [int(t) for t in options.tokens.split(",")] if options.tokens else [t for t, _ in layer.LOADS]
    shapes = [s for s in layer.SHAPES if s.name in wanted]
    loads = [load for load in layer.LOADS if load[0] in tokens]
    found = open_peers(options)
    compile_ahead(found, options, shapes, loads)
    record = Record(options)
    for shape in shapes:
        weights = layer.Weights(shape)
        for load in loads:
            cell = layer.Cell(shape, weights, *load)
            texts = [measure(record, cell, entry, configs) for entry, configs in peers_of(found, cell)
                     if options.only in entry]
            floor = cell.floor(record.read_tbs, options.peak_tflops)["floor_us"]
            print(f"{shape.name:14} {load[0]:6}{' zipf' if load[1] else '     '} floor {floor:8.1f} | "
                  + "  ".join(texts) + f" [{time.monotonic() - BEGIN:.0f} s]", flush=True)
            del cell
            torch.cuda.empty_cache()
        del weights
        torch.cuda.empty_cache()
    for text in record.left_out:
        print(f"left out: {text}")
    for text in record.wrong:
        print(f"WRONG: {text}")
    for text in record.missing:
        print(f"MISSING: {text}: no configuration ran")
    return 1 if record.wrong or record.missing else 0


if __name__ == "__main__":
    sys.exit(main())
