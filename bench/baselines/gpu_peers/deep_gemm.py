# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's grouped bf16 products, taken out of vLLM's wheel (setup_gpu_peers.sh), with our glue around them.

The library compiles its kernels with nvcc when they are first called and keeps them in $DG_JIT_CACHE_DIR. It wants the
rows of an expert to begin at multiples of an alignment, which is its tile as well. Two layouts: "rows" names the expert
of each row (its older one), "ends" the end of each expert ("psum").
"""

import dataclasses
import importlib
import multiprocessing
import os
import pathlib
import sys

import torch

from . import glue
from .layer import Cell, Shape


@dataclasses.dataclass(frozen=True)
class Config:
    layout: str
    align: int

    def __str__(self) -> str:
        return f"{self.layout} {self.align}"


def load(folder: pathlib.Path):
    """The library's module, or None with the reason printed: it is optional."""
    os.environ.setdefault("DG_JIT_CACHE_DIR", str(folder.parent / "deep_gemm_cache"))
    sys.path.insert(0, str(folder.parent))
    try:
        return importlib.import_module("deep_gemm")
    except Exception as error:  # another PyTorch than its wheel was made for, no nvcc, no folder
        print(f"deep_gemm: left out: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None


def candidates(rows_per_expert: float) -> list[Config]:
    """The older layout was ahead only where most experts have no row at all."""
    if rows_per_expert <= 24:
        return [Config("ends", 64)] + [Config("rows", 64)] * (rows_per_expert <= 1)
    return [Config("ends", align) for align in ((64, 128) if rows_per_expert <= 256 else (128,))]


def _options(config: Config, picks: int, experts: int) -> dict:
    if config.layout == "rows":
        return {}
    return dict(use_psum_layout=True, ensure_zero_padding=False, expected_m_for_psum_layout=max(1, picks // experts))


def run(module, cell: Cell, config: Config, i: int) -> torch.Tensor:
    routed, by_row = cell.routed, config.layout == "rows"
    module._C.set_mk_alignment_for_contiguous_layout(config.align)
    rows = routed.rows_of(config.align)
    routed.route(cell.logits[i])
    routed.sort(align=config.align, rows=by_row)
    routed.gather(cell.x[i], rows, cell.rows)
    layout = routed.expert_of_row[:rows] if by_row else routed.ends
    options = _options(config, routed.picks, routed.experts)
    product = module.m_grouped_bf16_gemm_nt_contiguous
    product(cell.rows[:rows], cell.w13(i), cell.both[:rows], layout, **options)
    glue.swiglu(cell.both, rows, cell.hidden, routed.num_rows)
    product(cell.hidden[:rows], cell.w2(i), cell.out[:rows], layout, **options)
    glue.combine(cell.out, routed, cell.y, sorted_rows=True)
    return cell.y


def _compile_product(module, shape: Shape, tokens: int, config: Config, n: int, k: int) -> None:
    """A call over no rows at all: what it compiles depends on sizes alone."""
    module._C.set_mk_alignment_for_contiguous_layout(config.align)
    routed = glue.Routed(tokens, shape.experts, shape.top_k)
    rows = routed.rows_of(config.align)
    new = lambda *size: torch.empty(*size, dtype=torch.bfloat16, device="cuda")
    layout = routed.expert_of_row[:rows].fill_(-1) if config.layout == "rows" else routed.ends
    module.m_grouped_bf16_gemm_nt_contiguous(new(rows, k), new(shape.experts, n, k), new(rows, n), layout,
                                             **_options(config, routed.picks, shape.experts))
    torch.cuda.synchronize()


def _compile(folder: pathlib.Path, jobs: list[tuple]) -> None:
    module = load(folder)
    for shape, config, (n, k), loads in jobs if module is not None else ():
        for tokens in loads:
            try:
                _compile_product(module, shape, tokens, config, n, k)
            except Exception as error:  # the run tells it again, by name
                print(f"deep_gemm: not compiled ahead: {shape.name} {config}: {str(error)[:200]}", flush=True)
                break
            torch.cuda.empty_cache()


def compile_ahead(folder: pathlib.Path, shapes, loads, processes: int) -> list:
    """Starts processes that fill the library's cache, each with products of its own; returns them, to join."""
    jobs: dict[tuple, list[int]] = {}
    for shape in shapes:
        for tokens in sorted({tokens for tokens, _ in loads}):
            for config in candidates(tokens * shape.top_k / shape.experts):
                for product in ((2 * shape.ffn_width, shape.width), (shape.width, shape.ffn_width)):
                    jobs.setdefault((shape, config, product), []).append(tokens)
    listed = [(*key, tokens) for key, tokens in jobs.items()]
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_compile, args=(folder, listed[j::processes])) for j in range(processes)]
    for process in started:
        process.start()
    return started
