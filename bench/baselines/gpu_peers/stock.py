# SPDX-License-Identifier: Apache-2.0
"""Peers that need PyTorch alone: the loop over experts; torch._grouped_mm with stock operations or with our glue."""

import torch
import torch.nn.functional as F

from . import glue
from .layer import Cell


def naive_loop(cell: Cell, i: int) -> torch.Tensor:
    """A product for each hit expert, as eager frameworks do it; the host reads which experts are hit."""
    weights, ids = cell.picks(i)
    y = torch.zeros_like(cell.x[i])
    for expert in ids.unique().tolist():
        token, pick = torch.where(ids == expert)
        gate, up = F.linear(cell.x[i][token], cell.w13(i)[expert]).chunk(2, -1)
        out = F.linear(F.silu(gate) * up, cell.w2(i)[expert])
        y.index_add_(0, token, out * weights[token, pick, None].to(y.dtype))
    return y


def grouped_mm_stock(cell: Cell, i: int) -> torch.Tensor:
    """Nothing but operations of PyTorch, as transformers' grouped_mm experts."""
    shape = cell.shape
    weights, ids = cell.picks(i)
    order = torch.argsort(ids.flatten())
    ends = torch.histc(ids.flatten().float(), bins=shape.experts, min=0, max=shape.experts - 1).cumsum(0).int()
    gate, up = torch._grouped_mm(cell.x[i][order // shape.top_k], cell.w13(i).transpose(1, 2), offs=ends).chunk(2, -1)
    rows = torch._grouped_mm(F.silu(gate) * up, cell.w2(i).transpose(1, 2), offs=ends)
    row_of_pick = torch.empty_like(order)
    row_of_pick[order] = torch.arange(len(order), device="cuda")
    rows = rows[row_of_pick].view(cell.tokens, shape.top_k, shape.width)
    return (rows * weights.to(rows.dtype)[..., None]).sum(1)


def grouped_mm_glue(cell: Cell, i: int) -> torch.Tensor:
    routed, n = cell.routed, cell.routed.picks
    routed.route(cell.logits[i])
    routed.sort(align=1)
    routed.gather(cell.x[i], n, cell.rows)
    both = torch._grouped_mm(cell.rows[:n], cell.w13(i).transpose(1, 2), offs=routed.ends)
    glue.swiglu(both, n, cell.hidden)
    rows = torch._grouped_mm(cell.hidden[:n], cell.w2(i).transpose(1, 2), offs=routed.ends)
    glue.combine(rows, routed, cell.y, sorted_rows=True)
    return cell.y
