#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rounding alone does in the case "rows with more than 2^31 values" of tests/cases/moe_ffn.h: a layer in f32, with and
without hidden values and expert rows rounded to bf16. Prints the relative error of the whole and the largest error in
units of the root mean square. Source of the tolerance moe_ffn_32_picks. Needs torch (scripts/requirements-oracle.txt)."""

import torch

TOKENS, EXPERTS, WIDTH, HIDDEN = 16400, 32, 4096, 16  # every token picks all experts


def rounded(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().float()


def main() -> None:
    torch.manual_seed(0)
    x = rounded(torch.randn(TOKENS, WIDTH))
    gate, up = (rounded(torch.randn(WIDTH, EXPERTS * HIDDEN) / WIDTH**0.5) for _ in range(2))
    down = rounded(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)
    weights = torch.softmax(-torch.log(-torch.log(torch.rand(TOKENS, EXPERTS).clamp(1e-6, 1 - 1e-7))), 1)
    wrong = total = largest = 0.0
    for rows, weight in zip(x.split(1025), weights.split(1025)):
        hidden = (torch.nn.functional.silu(rows @ gate) * (rows @ up)).view(-1, EXPERTS, HIDDEN)
        exact, rough = torch.zeros_like(rows), torch.zeros_like(rows)
        for e in range(EXPERTS):
            exact += weight[:, e : e + 1] * (hidden[:, e] @ down[e])
            rough += weight[:, e : e + 1] * rounded(rounded(hidden[:, e]) @ down[e])
        wrong += ((exact - rough) ** 2).sum().item()
        total += (exact**2).sum().item()
        largest = max(largest, (exact - rough).abs().max().item())
    print(f"relative error {(wrong / total) ** 0.5:.5f}, largest {largest / (total / (TOKENS * WIDTH)) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
