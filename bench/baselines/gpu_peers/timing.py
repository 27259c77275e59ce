# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a call on the GPU, as bench/gpu_moe.cu takes them: medians over replays of a graph of several calls."""

import statistics
import time

import torch


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def _once(work) -> float:
    begin, end = _events()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def graph_us(run, calls: int, budget_us: float = 60e3, least: int = 5, most: int = 41) -> float:
    """Of one of run(0) ... run(calls - 1): at least `least` replays, then until the budget or `most`; the first is not
    counted. All calls ran once before, so that what they compile or load is there."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(calls):
            run(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(calls):
            run(i)
    spent = _once(graph.replay)
    times: list[float] = []
    while len(times) < least or (len(times) < most and spent < budget_us):
        times.append(_once(graph.replay))
        spent += times[-1]
    return statistics.median(times) / calls


def eager_us(run, calls: int, least: int = 3, limit_s: float = 0.5) -> float:
    """For what waits for the host within the call, so that no graph can hold it."""
    run(0)
    torch.cuda.synchronize()
    begin, times = time.monotonic(), []
    while len(times) < least or (len(times) < 9 and time.monotonic() - begin < limit_s / 4):
        times.append(_once(lambda: run(len(times) % calls)))
    return statistics.median(times)
