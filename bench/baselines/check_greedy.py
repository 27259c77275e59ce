#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does llama.cpp say the same with a converted model? Compares greedy ids.

    check_greedy.py FOLDER MODEL.gguf LLAMA_GREEDY [--tokens N]

With FOLDER/golden/logits.json the ids recorded there are the authority, and its prompts must also
tokenise to the recorded ids. Without it, a NumPy forward pass of the folder (f32 arithmetic) is.
Where the two part, the authority's margin between its first and second choice at that place tells
a near tie from a fault. Exit code 1 if an f32 model parts anywhere by more than a near tie.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import hf_folder
import numpy as np

NEAR_TIE = 1e-3


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(eps)) * weight


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


class Reference:
    """The forward pass of qwen3_moe, olmoe and mixtral, whole prompt at once, no cache."""

    def __init__(self, folder):
        self.model = folder
        self.c = folder.config
        self.kind = self.c["model_type"]
        self.eps = self.c["rms_norm_eps"]

    def weight(self, name):
        return self.model.tensors[name].f32()

    def rope(self, x):
        """Pairs element i with i + Z/2; x is [heads, T, Z]."""
        tokens, size = x.shape[1], x.shape[2]
        base = self.c.get("rope_theta") or self.c["rope_parameters"]["rope_theta"]
        frequency = base ** (-np.arange(0, size, 2, dtype=np.float64) / size)
        angle = np.outer(np.arange(tokens), frequency)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        low, high = x[..., :size // 2], x[..., size // 2:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def attention(self, x, prefix):
        c, p = self.c, prefix + "self_attn."
        heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
        size = c.get("head_dim") or c["hidden_size"] // heads
        q, k, v = (x @ self.weight(f"{p}{n}_proj.weight").T for n in "qkv")
        if self.kind == "olmoe":
            q = rms_norm(q, self.weight(p + "q_norm.weight"), self.eps)
            k = rms_norm(k, self.weight(p + "k_norm.weight"), self.eps)
        q, k, v = (y.reshape(len(x), -1, size).swapaxes(0, 1) for y in (q, k, v))
        if self.kind == "qwen3_moe":
            q = rms_norm(q, self.weight(p + "q_norm.weight"), self.eps)
            k = rms_norm(k, self.weight(p + "k_norm.weight"), self.eps)
        q, k = self.rope(q), self.rope(k)
        k, v = (np.repeat(y, heads // groups, axis=0) for y in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.float32(np.sqrt(size))
        scores += np.triu(np.full(scores.shape[1:], -np.inf, np.float32), 1)
        out = (softmax(scores) @ v).swapaxes(0, 1).reshape(len(x), -1)
        return out @ self.weight(p + "o_proj.weight").T

    def experts(self, x, prefix):
        mixtral = self.kind == "mixtral"
        p = prefix + ("block_sparse_moe." if mixtral else "mlp.")
        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        probability = softmax(x @ self.weight(p + "gate.weight").T)
        picks = np.argsort(-probability, axis=-1, kind="stable")[:, :self.c["num_experts_per_tok"]]
        share = np.take_along_axis(probability, picks, axis=-1)
        if self.kind != "olmoe":
            share /= share.sum(axis=-1, keepdims=True)
        out = np.zeros_like(x)
        for expert in np.unique(picks):
            rows, slots = np.nonzero(picks == expert)
            gate, up, down = (self.weight(f"{p}experts.{expert}.{n}.weight") for n in names)
            g = x[rows] @ gate.T
            h = g / (1 + np.exp(-g)) * (x[rows] @ up.T)
            out[rows] += share[rows, slots, None] * (h @ down.T)
        return out

    def last_logits(self, ids):
        embedding = self.weight("model.embed_tokens.weight")
        x = embedding[ids]
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = x + self.attention(
                rms_norm(x, self.weight(p + "input_layernorm.weight"), self.eps), p)
            x = x + self.experts(
                rms_norm(x, self.weight(p + "post_attention_layernorm.weight"), self.eps), p)
        x = rms_norm(x[-1], self.weight("model.norm.weight"), self.eps)
        tied = self.c.get("tie_word_embeddings", False)
        return (embedding if tied else self.weight("lm_head.weight")) @ x

    def greedy(self, prompt, count):
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.last_logits(ids).argmax()))
        return ids[len(prompt):]

    def margin(self, ids):
        first, second = np.sort(self.last_logits(ids))[:-3:-1]
        return float(first - second)


def load_cases(args, reference):
    golden = args.folder / "golden" / "logits.json"
    if golden.exists():
        prompts = json.loads(golden.read_text(encoding="utf-8"))["prompts"]
        return [(p["prompt"], p["ids"], p["greedy"]) for p in prompts]
    bits, cases = np.random.PCG64(7), []
    for length in (3, 9, 17):
        ids = [int(w) % reference.c["vocab_size"] for w in bits.random_raw(length)]
        cases.append((None, ids, reference.greedy(ids, args.tokens)))
    return cases


def ask(args, lines):
    done = subprocess.run([args.llama_greedy, args.gguf], input="\n".join(lines), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{args.llama_greedy} ended with {done.returncode}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("gguf")
    parser.add_argument("llama_greedy")
    parser.add_argument("--tokens", type=int, default=12, help="without recorded goldens")
    args = parser.parse_args()

    reference = Reference(hf_folder.ModelFolder(args.folder))
    cases = load_cases(args, reference)
    lines = [f"greedy {len(greedy)} " + " ".join(map(str, ids)) for _, ids, greedy in cases]
    lines += [f"tokenize {text.encode().hex()}" for text, _, _ in cases if text is not None]
    answers = ask(args, lines)
    tokenised = iter(answers[len(cases):])

    equal = faults = 0
    for number, ((text, ids, expected), found) in enumerate(zip(cases, answers)):
        if text is not None and next(tokenised) != ids:
            print(f"prompt {number}: tokenises differently")
            faults += 1
        place = next((i for i, pair in enumerate(zip(expected, found)) if pair[0] != pair[1]), None)
        if place is None:
            equal += 1
            continue
        margin = reference.margin(ids + expected[:place])
        faults += margin > NEAR_TIE
        print(f"prompt {number}: parts at token {place} of {len(expected)}: "
              f"{found[place]} instead of {expected[place]}, margin {margin:.4f}")
    print(f"{args.gguf}: {equal} of {len(cases)} prompts give the same ids")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
