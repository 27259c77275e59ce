# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Hugging Face model folders with NumPy alone.

safetensors: u64 header length (little endian), JSON header {name: {dtype, shape, data_offsets}},
data. Tensors are memory-mapped, so that a large folder costs no memory until a tensor is used.
bf16 has no NumPy type: it travels as uint16 bits.
"""

import json
import pathlib

import numpy as np

DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}

# The word splitting of the Qwen2 family, which llama.cpp calls "qwen2".
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
               r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def bf16_to_f32(bits):
    """Widens bf16 bits; exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values):
    """Rounds to nearest even. For finite values, which weights are."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


class Tensor:
    """One stored tensor: its type name and its mapped data (uint16 bits for BF16)."""

    def __init__(self, dtype, data):
        self.dtype = dtype
        self.data = data

    def f32(self):
        if self.dtype == "BF16":
            return bf16_to_f32(self.data)
        return self.data.astype(np.float32)

    def bf16(self):
        return self.data if self.dtype == "BF16" else f32_to_bf16(self.f32())


class ModelFolder:
    """config.json and every tensor of a folder, from one file or from the shards of an index."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        index = self.folder / "model.safetensors.index.json"
        if index.exists():
            shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            shards = ["model.safetensors"]
        self.tensors = {}
        for shard in shards:
            self._map_shard(self.folder / shard)

    def _map_shard(self, path):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        data = np.memmap(path, np.uint8, "r", offset=8 + length)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in DTYPES:
                raise SystemExit(f"{path}: tensor {name} has type {entry['dtype']}; "
                                 f"expected one of {sorted(DTYPES)}")
            begin, end = entry["data_offsets"]
            array = data[begin:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
            self.tensors[name] = Tensor(entry["dtype"], array)


def write_shards(folder, plan, make, shard_bytes=1 << 30):
    """Writes bf16 tensors in shards with an index.

    plan: list of (name, shape); make(name, shape) gives the bf16 bits of a tensor when its turn
    comes, in the order of the plan.
    """
    shards, size = [[]], 0
    for name, shape in plan:
        bytes_ = 2 * int(np.prod(shape))
        if shards[-1] and size + bytes_ > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += bytes_

    weight_map, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        header, offset = {"__metadata__": {"format": "pt"}}, 0
        for name, shape in shard:
            end = offset + 2 * int(np.prod(shape))
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
            weight_map[name] = file_name
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(pathlib.Path(folder) / file_name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, shape in shard:
                make(name, shape).tofile(file)
        total += offset
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (pathlib.Path(folder) / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return total
