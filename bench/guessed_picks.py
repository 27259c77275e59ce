#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often a step of one token would guess its picks right, for a trained model on text of its own (needs transformers).

    bench/guessed_picks.py [MODEL] [TEXT ...] [--tokens 512]

A guess is made as src/kernels/cuda/persistent_foresight.cuh makes it: the router on the residual stream before attention.
Prints, by layer and place (0: the highest guess), the share of guesses that are among the picks. Models whose blocks have
`post_attention_layernorm` and `mlp.gate`: Qwen3-MoE, OLMoE, Mixtral.
"""

import argparse
import pathlib

import torch
import transformers


class Streams:
    """The residual stream before and after attention, of each block."""

    def __init__(self, blocks):
        self.before, self.after = [None] * len(blocks), [None] * len(blocks)
        for i, block in enumerate(blocks):
            block.register_forward_pre_hook(self.keep(self.before, i), with_kwargs=True)
            block.post_attention_layernorm.register_forward_pre_hook(self.keep(self.after, i), with_kwargs=True)

    @staticmethod
    def keep(into: list, i: int):
        def hook(_module, args, kwargs):
            into[i] = (args[0] if args else kwargs["hidden_states"]).detach()[0]
        return hook


def picks(block, stream: torch.Tensor, top_k: int) -> torch.Tensor:
    norm = block.post_attention_layernorm.weight.float()
    x = stream.float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * norm
    return (x @ block.mlp.gate.weight.float().T).topk(top_k, -1).indices


def main() -> None:
    here = pathlib.Path(__file__).resolve().parent.parent / "models/demo"
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", nargs="?", default=str(here))
    parser.add_argument("text", nargs="*", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=512, help="of each text")
    options = parser.parse_args()
    texts = options.text or sorted((here / "held_out").glob("*.txt"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    blocks, top_k = model.model.layers, model.config.num_experts_per_tok
    streams, right, tokens = Streams(blocks), torch.zeros(len(model.model.layers), top_k), 0
    for text in texts:
        ids = tokenizer(text.read_text()[:options.tokens * 16], return_tensors="pt").input_ids[:, :options.tokens]
        with torch.no_grad():
            model(ids)
            for i, block in enumerate(blocks):
                guess, pick = picks(block, streams.before[i], top_k), picks(block, streams.after[i], top_k)
                right[i] += (guess[:, :, None] == pick[:, None, :]).any(-1).float().sum(0)
        tokens += ids.shape[1]
    print("| layer | " + " | ".join(f"place {k}" for k in range(top_k)) + " |")
    print("|---" * (1 + top_k) + "|")
    for i, row in enumerate([*right / tokens, (right / tokens).mean(0)]):
        print(f"| {i if i < len(blocks) else 'mean'} | " + " | ".join(f"{share:.3f}" for share in row) + " |")
    print(f"{tokens} tokens; {(right / tokens).mean():.3f} of all picks")


if __name__ == "__main__":
    main()
