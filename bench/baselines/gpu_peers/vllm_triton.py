# SPDX-License-Identifier: Apache-2.0
"""vLLM's Triton kernel `fused_moe_kernel`, as it is in a downloaded wheel (setup_gpu_peers.sh), with our glue in place
of its small CUDA kernels of equal function.

Only the kernel, what it calls and `get_default_config` are cut out of fused_moe.py: the rest of the file imports the
whole of vLLM. Launches follow invoke_fused_moe_triton_kernel and _prepare_expert_assignment of the same file.
"shipped" is the configuration that vLLM would choose: its table for this shape on an H200, or its default; "tuned" the
best of that and a few of ours. Its own tuning tries hundreds.
"""

import ast
import dataclasses
import importlib.util
import json
import multiprocessing
import pathlib
import types

import torch

from . import glue
from .layer import Cell, Shape

WANTED = ("write_zeros_to_output", "fused_moe_kernel", "get_default_config")
HEAD = """import triton
import triton.language as tl
from typing import Any
class envs: VLLM_BATCH_INVARIANT = False
class current_platform: is_rocm = staticmethod(lambda: False)
"""


@dataclasses.dataclass(frozen=True)
class Config:
    m: int
    n: int
    k: int
    group_m: int = 1
    warps: int = 4
    stages: int = 4

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} g{self.group_m} w{self.warps} s{self.stages}"


def load(folder: pathlib.Path) -> types.ModuleType:
    """The module made of the wanted parts; Triton needs it as a file."""
    source = (folder / "fused_moe.py").read_text()
    lines = source.splitlines(keepends=True)
    parts = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in WANTED:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            parts[node.name] = "".join(lines[first - 1:node.end_lineno])
    missing = [name for name in WANTED if name not in parts]
    if missing:
        raise SystemExit(f"{folder}/fused_moe.py lacks {', '.join(missing)}: not the version that setup_gpu_peers.sh takes")
    cut = folder / "fused_moe_cut.py"
    text = HEAD + "\n\n".join(parts[name] for name in WANTED)
    if not cut.exists() or cut.read_text() != text:
        cut.write_text(text)
    spec = importlib.util.spec_from_file_location("switchyard_peer_vllm", cut)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.folder = folder
    return module


def shipped(module: types.ModuleType, shape: Shape, tokens: int) -> tuple[Config, str]:
    table = module.folder / f"configs/E={shape.experts},N={shape.ffn_width},device_name=NVIDIA_H200.json"
    if table.exists():
        by_tokens = {int(key): value for key, value in json.loads(table.read_text()).items() if key.isdigit()}
        chosen, origin = by_tokens[min(by_tokens, key=lambda key: abs(key - tokens))], "table"
    else:
        chosen = module.get_default_config(tokens, shape.experts, shape.ffn_width, shape.width, shape.top_k, None)
        origin = "default"
    return Config(chosen["BLOCK_SIZE_M"], chosen["BLOCK_SIZE_N"], chosen["BLOCK_SIZE_K"], chosen["GROUP_SIZE_M"],
                  chosen.get("num_warps", 4), chosen.get("num_stages", 3)), origin


def candidates(rows_per_expert: float) -> list[Config]:
    large = [Config(128, 256, 64, 16, 8, 4), Config(128, 256, 64, 8, 8, 3)]
    middle = [Config(64, 128, 64, 8, 4, 4), Config(64, 256, 64, 8, 8, 4)]
    if rows_per_expert <= 6:
        return [Config(16, 64, 128), Config(16, 64, 256, stages=3), Config(16, 32, 256)]
    if rows_per_expert <= 20:
        return [Config(16, 64, 128), Config(16, 128, 128), Config(32, 128, 128, stages=3), Config(32, 64, 128)]
    if rows_per_expert <= 48:
        return [Config(32, 128, 128, stages=3), *middle]
    return middle + large if rows_per_expert <= 150 else large


@dataclasses.dataclass(frozen=True)
class Plan:
    """How vLLM sizes the launches of a call: without a sort when picks are few beside the experts."""
    sorts: bool
    rows_up: int
    rows_down: int


def plan(shape: Shape, tokens: int, block: int) -> Plan:
    picks = tokens * shape.top_k
    if picks * 4 <= shape.experts:
        return Plan(False, picks * block, picks * block)
    padded = picks * block if picks < shape.experts else picks + shape.experts * (block - 1)
    rows = [min(padded, picks * block) if few < block else padded for few in (tokens, picks)]
    return Plan(True, *rows)


def arguments(a, b, c, weights, routed, n: int, k: int, rows: int, picks: int, config: Config, sorts: bool,
              top_k: int, last: bool) -> tuple[list, dict, tuple[int]]:
    """Of one launch; tensors or, to compile ahead, dtypes. `routed`: sorted ids, experts of blocks, count of rows."""
    import triton.language as tl
    sorted_ids, experts, num_rows = routed
    strides = [k, 1, n * k, 1, k, n, 1] + [0] * 7
    values = [a, b, c, None, None, None, weights, sorted_ids if sorts else None, experts, num_rows, n, k, rows, picks,
              *strides]
    constants = dict(group_n=0, group_k=0, naive_block_assignment=not sorts, BLOCK_SIZE_M=config.m,
                     BLOCK_SIZE_N=config.n, BLOCK_SIZE_K=config.k, GROUP_SIZE_M=config.group_m, SPLIT_K=1,
                     MUL_ROUTED_WEIGHT=last, top_k=top_k, compute_type=tl.bfloat16, use_fp8_w8a8=False,
                     use_int8_w8a8=False, use_int8_w8a16=False, per_channel_quant=False, HAS_BIAS=False,
                     SWAP_AB=False, USE_TD=False, num_warps=config.warps, num_stages=config.stages)
    return values, constants, (-(-rows // config.m) * -(-n // config.n),)


def run(module: types.ModuleType, cell: Cell, config: Config, i: int) -> torch.Tensor:
    shape, routed = cell.shape, cell.routed
    how = plan(shape, cell.tokens, config.m)
    routed.route(cell.logits[i])
    if how.sorts:
        routed.sort(align=config.m, blocks=True)
        given = (routed.pick_of_row, routed.expert_of_block, routed.num_rows)
    else:
        given = (None, routed.ids, cell.constant(how.rows_up))
    values, constants, grid = arguments(cell.x[i], cell.w13(i), cell.both, routed.weights, given, 2 * shape.ffn_width,
                                        shape.width, how.rows_up, routed.picks, config, how.sorts, shape.top_k, False)
    module.fused_moe_kernel[grid](*values, **constants)
    glue.swiglu(cell.both, routed.picks, cell.hidden)
    values, constants, grid = arguments(cell.hidden, cell.w2(i), cell.out, routed.weights, given, shape.width,
                                        shape.ffn_width, how.rows_down, routed.picks, config, how.sorts, 1, True)
    module.fused_moe_kernel[grid](*values, **constants)
    glue.combine(cell.out, routed, cell.y, sorted_rows=False)
    return cell.y


def _variants(module: types.ModuleType, shapes, loads) -> list[tuple[list, dict]]:
    """Each launch that Triton would compile for itself, once: it tells integers apart by 1 and by multiples of 16."""
    seen: dict[tuple, tuple[list, dict]] = {}
    bf16, f32, i32 = torch.bfloat16, torch.float32, torch.int32
    for shape in shapes:
        for tokens, _ in loads:
            for config in {shipped(module, shape, tokens)[0], *candidates(tokens * shape.top_k / shape.experts)}:
                how, picks = plan(shape, tokens, config.m), tokens * shape.top_k
                for n, k, rows, top_k, last in ((2 * shape.ffn_width, shape.width, how.rows_up, shape.top_k, False),
                                                (shape.width, shape.ffn_width, how.rows_down, 1, True)):
                    values, constants, _ = arguments(bf16, bf16, bf16, f32, (i32, i32, i32), n, k, rows, picks, config,
                                                     how.sorts, top_k, last)
                    kinds = tuple((v == 1, v % 16 == 0) for v in values if isinstance(v, int))
                    seen.setdefault((kinds, config, how.sorts, top_k, last), (values, constants))
    return list(seen.values())


def _compile(folder: pathlib.Path, jobs: list[tuple[list, dict]]) -> None:
    torch.cuda.set_device(0)
    module = load(folder)
    for values, constants in jobs:
        try:
            module.fused_moe_kernel.warmup(*values, grid=(1,), **constants)
        except Exception as error:  # too much shared memory, say: the run tells it again, by name
            print(f"vllm triton: not compiled ahead: {str(error)[:120]}", flush=True)


def compile_ahead(module: types.ModuleType, shapes, loads, processes: int) -> tuple[int, list]:
    """Starts processes that fill Triton's cache; returns how many variants, and the processes to join."""
    jobs = _variants(module, shapes, loads)
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_compile, args=(module.folder, jobs[j::processes])) for j in range(processes)]
    for process in started:
        process.start()
    return len(jobs), started
