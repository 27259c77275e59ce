# SPDX-License-Identifier: Apache-2.0
"""Reads a routing trace (src/moe/trace/format.h) into plain lists. Written apart from the C++ reader on purpose: figures
that both give are checked twice. Checksums are left to the C++ reader."""

import dataclasses
import json
import pathlib
import struct

MAGIC = bytes([0x89, 0x53, 0x57, 0x54, 0x0D, 0x0A, 0x1A, 0x0A])
DROPPED = 65535


@dataclasses.dataclass
class Step:
    tokens: int
    topics: list[int]               # of each token; -1: none
    demand: list[tuple[int, ...]]   # [L][E]
    picks: list[tuple[int, ...]]    # [L][T * K], empty without picks


@dataclasses.dataclass
class Trace:
    layers: int
    experts: int
    top_k: int
    topics: list[str]
    steps: list[Step]

    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    def loads(self, layer: int) -> list[int]:
        """Picks of each expert over the whole trace."""
        return [sum(column) for column in zip(*(step.demand[layer] for step in self.steps))]

    def token_picks(self, layer: int) -> list[tuple[int, ...]]:
        """The picks of every token, in the order of the trace."""
        found = []
        for step in self.steps:
            flat = step.picks[layer]
            found += [flat[i:i + self.top_k] for i in range(0, len(flat), self.top_k)]
        return found

    def token_topics(self) -> list[int]:
        return [topic for step in self.steps for topic in step.topics]


def padded(size: int) -> int:
    return (size + 7) // 8 * 8


def read_step(data: bytes, at: int, header: dict) -> Step:
    layers, experts, top_k = header["num_moe_layers"], header["num_experts"], header["top_k"]
    tokens, sequences, _ = struct.unpack_from("<QII", data, at)
    at += 16
    topics = []
    for i in range(sequences):
        _, _, count, topic, _ = struct.unpack_from("<QIIiI", data, at + 24 * i)
        topics += [topic] * count
    at += 24 * sequences
    demand = [struct.unpack_from(f"<{experts}I", data, at + 4 * experts * layer) for layer in range(layers)]
    at += padded(4 * experts * layers)
    at += padded(4 * layers)  # dropped
    picks = []
    if header["picks"]:
        at += padded(4 * layers * tokens * top_k)  # weights
        size = tokens * top_k
        picks = [struct.unpack_from(f"<{size}H", data, at + 2 * size * layer) for layer in range(layers)]
    return Step(tokens, topics, demand, picks)


def read(path: str | pathlib.Path) -> Trace:
    data = pathlib.Path(path).read_bytes()
    if data[:8] != MAGIC:
        raise SystemExit(f"{path}: not a routing trace")
    version, _, size = struct.unpack_from("<IIQ", data, 8)
    if version != 1:
        raise SystemExit(f"{path}: version {version}, expected 1")
    header = json.loads(data[24:24 + size])
    trace = Trace(header["num_moe_layers"], header["num_experts"], header["top_k"], [], [])
    at = 24 + size
    while True:
        kind, length = data[at:at + 4], struct.unpack_from("<Q", data, at + 8)[0]
        at += 16
        if kind == b"TOPC":
            trace.topics.append(data[at:at + length].decode())
        elif kind == b"STEP":
            trace.steps.append(read_step(data, at, header))
        elif kind == b"END ":
            return trace
        at += padded(length)
