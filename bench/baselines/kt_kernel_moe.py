#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MoE layers alone through kt-kernel's bf16 CPU operator (AMX for many rows, AVX-512 for few).

    kt-venv/bin/python kt_kernel_moe.py [--shape olmoe] [--tokens 1,16,64,512] [--threads 2]

Same shapes, routing and output lines as peer_ggml_moe.cpp. The compiled extension of the wheel is
loaded by itself: the package around it imports PyTorch, which the operator does not need. The
layers of a run are submitted together and waited for once, which is kinder than serving, where
every layer waits for attention. The first result is checked against NumPy.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import sysconfig
import time

import hf_folder
import numpy as np

SHAPES = {  # experts, picks, width, expert width
    "olmoe": (64, 8, 2048, 1024),
    "mixtral-like": (8, 2, 2048, 7168),
    "qwen3-30b-a3b": (128, 8, 2048, 768),
}
MASK64 = (1 << 64) - 1


def load_extension(variant):
    package = pathlib.Path(sysconfig.get_path("platlib")) / "kt_kernel"
    found = sorted(package.glob(f"_kt_kernel_ext_{variant}.*.so"))
    if not found:
        raise SystemExit(f"kt_kernel_moe: no variant {variant!r} in {package}; "
                         "run setup_python.sh and this script with kt-venv/bin/python")
    spec = importlib.util.spec_from_file_location("kt_kernel_ext", found[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def splitmix64(seed):
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK64
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        yield z ^ (z >> 31)


def draw_routing(experts, picks, tokens, seed):
    """K different experts for each token, the draw of peer_ggml_moe.cpp."""
    random, ids = splitmix64(seed), np.empty((tokens, picks), np.int64)
    for token in range(tokens):
        deck = list(range(experts))
        for k in range(picks):
            other = k + next(random) % (experts - k)
            deck[k], deck[other] = deck[other], deck[k]
        ids[token] = deck[:picks]
    return ids


class Layer:
    """One MoE layer. kt-kernel packs its own copy of the weights, so the source of every expert is
    a window of one noise buffer, moved by 64 bytes from expert to expert."""

    STEP = 32

    def __init__(self, ext, pool, shape, max_tokens, noise, index):
        self.experts, self.picks, self.width, self.inner = shape
        self.noise = noise
        self.mask = np.zeros(self.experts, np.uint8)
        config = ext.moe.MOEConfig(self.experts, self.picks, self.width, self.inner,
                                   self.mask.ctypes.data)
        config.layer_idx = index
        config.pool = pool.backend_
        config.max_len = max_tokens
        windows = [[noise.ctypes.data + 2 * self.start(part, e) for e in range(self.experts)]
                   for part in range(3)]
        none = [[0] * self.experts]
        config.gate_projs, config.up_projs, config.down_projs = ([w] for w in windows)
        config.gate_scales = config.up_scales = config.down_scales = none
        self.operator = ext.moe.AMXBF16_MOE(config)
        self.order = np.arange(self.experts, dtype=np.int64)
        pool.submit(self.operator.load_weights_task(self.order.ctypes.data))
        pool.sync()

    def start(self, part, expert):
        return self.STEP * (3 * expert + part)

    def matrix(self, part, expert):
        rows, columns = (self.width, self.inner) if part == 2 else (self.inner, self.width)
        start = self.start(part, expert)
        bits = self.noise[start:start + rows * columns]
        return hf_folder.bf16_to_f32(bits).reshape(rows, columns)

    def expected(self, x, ids, weights):
        out = np.zeros(self.width, np.float32)
        for expert, weight in zip(ids, weights):
            gate = self.matrix(0, expert) @ x
            hidden = gate / (1 + np.exp(-gate)) * (self.matrix(1, expert) @ x)
            out += weight * (self.matrix(2, expert) @ hidden)
        return out


class Batch:
    """Input, routing and output of T tokens, at addresses that stay."""

    def __init__(self, shape, tokens):
        experts, picks, width, _ = shape
        generator = np.random.Generator(np.random.PCG64(2))
        self.tokens = np.array([tokens], np.int32)
        self.x = hf_folder.f32_to_bf16(generator.standard_normal((tokens, width), np.float32))
        self.weights = np.full((tokens, picks), 1.0 / picks, np.float32)
        self.ids = np.zeros((tokens, picks), np.int64)
        self.out = np.zeros((tokens, width), np.uint16)

    def task(self, layer, ids):
        return layer.operator.forward_task(
            self.tokens.ctypes.data, layer.picks, ids.ctypes.data, self.weights.ctypes.data,
            self.x.ctypes.data, self.out.ctypes.data, False)


def check(pool, layer, shape):
    batch = Batch(shape, 1)
    ids = draw_routing(shape[0], shape[1], 1, 5)
    pool.submit(batch.task(layer, ids))
    pool.sync()
    expected = layer.expected(hf_folder.bf16_to_f32(batch.x[0]), ids[0], batch.weights[0])
    found = hf_folder.bf16_to_f32(batch.out[0])
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    if not error < 2e-2:
        raise SystemExit(f"kt_kernel_moe: relative error {error:.3g} against NumPy; "
                         "expected < 2e-2")
    print(f"relative error of one token against NumPy {error:.2e}", file=sys.stderr)


def time_runs(pool, layers, shape, tokens, runs):
    batch, times, warm_up = Batch(shape, tokens), [], 2
    for run in range(runs + warm_up):
        ids = [draw_routing(shape[0], shape[1], tokens, 1000003 * run + l)
               for l in range(len(layers))]
        tasks = [batch.task(layer, i) for layer, i in zip(layers, ids)]
        start = time.perf_counter()
        for task in tasks:
            pool.submit(task)
        pool.sync()
        if run >= warm_up:
            times.append(1e3 * (time.perf_counter() - start))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="olmoe")
    parser.add_argument("--tokens", default="1,16,64,512")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--runs", type=int, help="200 at one token, 24 below 128, else 8")
    parser.add_argument("--variant", default="amx", help="amx or avx512_bf16")
    args = parser.parse_args()

    # The extension prints greetings on stdout, which belongs to the results: send them to stderr.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    shape = SHAPES[args.shape]
    token_counts = [int(t) for t in args.tokens.split(",")]
    ext = load_extension(args.variant)
    workers = ext.WorkerPoolConfig()
    workers.subpool_count, workers.subpool_numa_map = 1, [0]
    workers.subpool_thread_count = [args.threads]
    pool = ext.CPUInfer(workers)

    size = shape[2] * shape[3] + Layer.STEP * 3 * shape[0]
    generator = np.random.Generator(np.random.PCG64(1))
    noise = hf_folder.f32_to_bf16(generator.standard_normal(size, np.float32) * np.float32(0.02))
    layers = [Layer(ext, pool, shape, max(token_counts), noise, i) for i in range(args.layers)]
    check(pool, layers[0], shape)

    for tokens in token_counts:
        runs = args.runs or (200 if tokens == 1 else 24 if tokens < 128 else 8)
        times = time_runs(pool, layers, shape, tokens, runs)
        print(json.dumps({
            "engine": "kt-kernel", "shape": args.shape, "tokens": tokens, "dtype": "bf16",
            "threads": args.threads, "layers": args.layers,
            "median_ms": round(float(np.median(times)), 3), "best_ms": round(min(times), 3),
            "runs": runs}, separators=(",", ":")), file=results, flush=True)


if __name__ == "__main__":
    main()
