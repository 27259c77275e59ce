#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's scaled_dot_product_attention beside our attention: contiguous K and V, bf16, by cuDNN and by FlashAttention.

  torch_attention.py [--only TEXT] >> RECORD.jsonl

Shapes, names and the way of timing are those of bench_gpu_step: graph replays that go round several caches, the median of
ten, in us for one call. K and V are not paged here, which spares the peer the table. A backend that refuses a shape, or
captures no graph, gets a row with "error".
"""
import argparse
import json
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPES = {"qwen3-30b-a3b": (32, 4), "olmoe-1b-7b": (16, 16), "mixtral-8x7b": (32, 8)}
WIDTH = 128
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def read_bytes_per_us():
    """Of a reduction over 4 GiB: what this card reads at most, roughly."""
    data = torch.randint(0, 1 << 30, (1 << 30,), dtype=torch.int32, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        begin.record()
        data.max()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3)
    return data.numel() * 4 / best


def time_graph(call, copies):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i % copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(copies):
            call(i)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(13):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e3 / copies)
    return statistics.median(times)


def run(model, sequences, context, tokens, bandwidth, only):
    heads, kv_heads = SHAPES[model]
    name = f"{'decode' if tokens == 1 else 'prefill'} {model} B={sequences} context={context}"
    name += "" if tokens == 1 else f" T={tokens}"
    if only not in name:
        return
    length = context + tokens
    moved = sequences * length * 4 * kv_heads * WIDTH + 4 * sequences * tokens * heads * WIDTH
    flop = 4 * sequences * tokens * (context + (tokens + 1) / 2) * heads * WIDTH
    copies = int(min(max(150e6 / moved, 1), 32)) + 1

    def random(count, n):
        return torch.randn(sequences, count, n, WIDTH, dtype=torch.bfloat16, device="cuda")

    q = random(heads, tokens)
    k = [random(kv_heads, length) for _ in range(copies)]
    v = [random(kv_heads, length) for _ in range(copies)]
    for backend, choice in BACKENDS.items():
        row = {"case": f"{name} torch {backend}", "floor_us": round(moved / bandwidth, 3)}
        try:
            with sdpa_kernel(choice):
                us = time_graph(
                    lambda i: scaled_dot_product_attention(
                        q, k[i], v[i], is_causal=tokens > 1, enable_gqa=heads != kv_heads), copies)
            row |= {"us": round(us, 3), "tflops": round(flop / us * 1e-6, 2)}
        except RuntimeError as error:
            row["error"] = str(error).splitlines()[0][:200]
        print(json.dumps(row | {"read_tb_per_s": round(bandwidth * 1e-6, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    bandwidth = read_bytes_per_us()
    for model in SHAPES:
        for sequences in (1, 8, 64):
            for context in (64, 1024, 4096):
                run(model, sequences, context, 1, bandwidth, only)
        run(model, 256, 1024, 1, bandwidth, only)
        for tokens in (512, 2048, 4096, 8192):
            run(model, 1, 0, tokens, bandwidth, only)


if __name__ == "__main__":
    main()
