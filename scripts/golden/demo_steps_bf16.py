#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far bf16 takes the demonstration model's logits from f32 in transformers, over the steps of
tests/model/cuda_model_test.cpp (`plan`), for each of its streams of tokens: the bound of its bf16 comparison. Run in the root, with
the oracle's packages (scripts/requirements-oracle.txt). Prints the relative error of each stream, the number of rows and the relative
error of all of them together."""

import torch
import transformers

STEPS = ([[37], [1], [1], [1, 50], [1, 1], [1, 1], [20, 1, 3]] + [[1] * n for n in (3, 3, 4)]
         + [[1, 1, 1, 1, 9, 8, 7, 6, 5]] + [[1] * n for n in (9, 9, 10, 11, 5)] + [[2] * 20]
         + [[1] * n for n in (17, 18, 20, 1)])
VOCAB = 8192
STREAMS = range(7, 15)


def philox4x32(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds (Salmon et al. 2011), as src/base/random."""
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 2**32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def main() -> None:
    assert philox4x32([0, 0, 0, 0], [0, 0])[0] == 0x6627E8D5  # the paper's first vector
    lengths, rows = [0] * 24, []
    for step in STEPS:
        for sequence, count in enumerate(step):
            lengths[sequence] += count
            rows.append((sequence, lengths[sequence] - 1))
    exact, rough = (transformers.AutoModelForCausalLM.from_pretrained("models/demo", dtype=dtype).eval()
                    for dtype in (torch.float32, torch.bfloat16))
    all_wrong = all_total = 0.0
    for stream in STREAMS:
        wrong = total = 0.0
        for sequence, length in enumerate(lengths):
            if length == 0:
                continue
            ids = torch.tensor([[philox4x32([sequence, p, 0, 0], [stream, 7])[0] % VOCAB for p in range(length)]])
            with torch.no_grad():
                a, b = exact(ids).logits[0].double(), rough(ids).logits[0].double()
            at = [row for owner, row in rows if owner == sequence]
            wrong += ((a[at] - b[at]) ** 2).sum().item()
            total += (a[at] ** 2).sum().item()
        print(f"stream {stream}: {(wrong / total) ** 0.5:.5f}")
        all_wrong += wrong
        all_total += total
    print(f"{len(rows) * len(STREAMS)} rows, relative error {(all_wrong / all_total) ** 0.5:.5f}, "
          f"transformers {transformers.__version__}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
