# SPDX-License-Identifier: Apache-2.0
"""glue.cu for Python: built once with nvcc (or taken from $SWITCHYARD_PEER_GLUE), called through ctypes."""

import ctypes
import os
import pathlib
import subprocess

import torch

SOURCE = pathlib.Path(__file__).with_name("glue.cu")
READ_BYTES = 62 * 4 * 16 * 512 * 16 * 132  # whole rounds of the probe's grid, about 4.3 GB
_library = None


def build(to: pathlib.Path) -> pathlib.Path:
    """The shared library of glue.cu, made anew if the source is younger."""
    if not to.exists() or to.stat().st_mtime < SOURCE.stat().st_mtime:
        to.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["nvcc", "-O3", "-std=c++20", "-gencode=arch=compute_90,code=sm_90", "-shared", "-Xcompiler",
                        "-fPIC", "-cudart", "static", "-o", str(to), str(SOURCE)], check=True)
    return to


def load(folder: pathlib.Path) -> None:
    global _library
    made = os.environ.get("SWITCHYARD_PEER_GLUE")
    _library = ctypes.CDLL(made or str(build(folder / "gpu_peer_glue.so")))


class Sort(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ids", "pick_of_row", "row_of_pick", "expert_of_block",
                                                     "expert_of_row", "bounds", "num_rows")]
    _fields_ += [(name, ctypes.c_int) for name in ("picks", "experts", "align", "capacity")]


def address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else 0)


def call(name: str, *args) -> None:
    """Integers become int, tensors and None addresses; the current stream comes last."""
    values = [ctypes.c_int(a) if isinstance(a, int) else a if isinstance(a, ctypes._SimpleCData) or hasattr(a, "_obj")
              else address(a) for a in args]
    error = getattr(_library, name)(*values, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if error != 0:
        raise RuntimeError(f"{name}: CUDA error {error}")


class Routed:
    """The picks of a layer call, and their rows sorted by expert."""

    def __init__(self, tokens: int, experts: int, top_k: int):
        self.tokens, self.experts, self.top_k, self.picks = tokens, experts, top_k, tokens * top_k
        new = lambda count: torch.zeros(count, dtype=torch.int32, device="cuda")
        self.capacity = self.rows_of(128)
        self.ids, self.row_of_pick, self.num_rows = new(self.picks), new(self.picks), new(1)
        self.weights = torch.zeros(self.picks, dtype=torch.float32, device="cuda")
        self.pick_of_row, self.expert_of_row = new(self.capacity), new(self.capacity)
        self.expert_of_block, self.bounds = new(self.capacity // 16 + 8), new(4 * experts)

    def rows_of(self, align: int) -> int:
        """The most rows that there can be when each expert is padded to `align`."""
        rows = self.picks + min(self.picks, self.experts) * (align - 1)
        return (rows + align - 1) // align * align

    @property
    def ends(self) -> torch.Tensor:
        """Where the rows of each expert end, without its padding."""
        return self.bounds[2 * self.experts:3 * self.experts]

    def route(self, logits: torch.Tensor) -> None:
        call("glue_route", logits, self.tokens, self.experts, self.top_k, self.ids, self.weights)

    def sort(self, align: int, blocks: bool = False, rows: bool = False) -> None:
        """`blocks`, `rows`: also the expert of each block of `align` rows, of each row."""
        fields = (self.ids, self.pick_of_row, self.row_of_pick, self.expert_of_block if blocks else None,
                  self.expert_of_row if rows else None, self.bounds, self.num_rows)
        self.sorted = Sort(*(address(f).value for f in fields), self.picks, self.experts, align, self.rows_of(align))
        call("glue_sort", ctypes.byref(self.sorted))

    def gather(self, x: torch.Tensor, rows: int, to: torch.Tensor) -> None:
        call("glue_gather", x, ctypes.byref(self.sorted), self.top_k, x.shape[1], rows, to)


def swiglu(both: torch.Tensor, rows: int, hidden: torch.Tensor, num_rows: torch.Tensor | None = None) -> None:
    call("glue_swiglu", both, num_rows, hidden.shape[1], rows, hidden)


def combine(rows: torch.Tensor, routed: Routed, y: torch.Tensor, sorted_rows: bool) -> None:
    """`sorted_rows` false: rows stand in the order of picks and bear their weights already."""
    call("glue_combine", rows, routed.row_of_pick if sorted_rows else None, routed.weights if sorted_rows else None,
         routed.tokens, routed.top_k, y.shape[1], y)


def read(source: torch.Tensor, sink: torch.Tensor) -> None:
    call("glue_read", source, ctypes.c_int64(READ_BYTES), sink)
