#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a random-weight MoE model folder of a given geometry, for speed measurements.

    make_random_model.py PRESET OUT [--seed N] [--layers N] [--vocab N]

The folder holds config.json, bf16 safetensors shards with an index and a byte-level BPE tokenizer.
The same preset and seed give the same bytes on every machine: the noise comes from integer
arithmetic on the raw output of PCG64, whose stream NumPy promises to keep.
"""

import argparse
import json
import pathlib

import hf_folder
import numpy as np

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

COMMON = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 2,
    "pad_token_id": 0, "hidden_act": "silu", "initializer_range": 0.02,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 1024,
}


def olmoe(**sizes):
    return {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", **COMMON,
            "clip_qkv": None, "norm_topk_prob": False, "rope_scaling": None,
            "output_router_logits": False, "router_aux_loss_coef": 0.01, **sizes}


def mixtral(**sizes):
    return {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", **COMMON,
            "sliding_window": None, "output_router_logits": False, "router_aux_loss_coef": 0.02,
            "router_jitter_noise": 0.0, **sizes}


def qwen3_moe(**sizes):
    return {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **COMMON,
            "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
            "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
            "output_router_logits": False, "router_aux_loss_coef": 0.001, **sizes}


PRESETS = {
    "olmoe-4l": olmoe(
        hidden_size=2048, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=16, num_experts=64, num_experts_per_tok=8),
    "mixtral-like-4l": mixtral(
        hidden_size=2048, intermediate_size=7168, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=4, head_dim=128, num_local_experts=8, num_experts_per_tok=2),
    "qwen3-30b-a3b-2l": qwen3_moe(
        hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=2,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, rms_norm_eps=1e-6, rope_theta=1000000.0),
    # Seconds instead of minutes, for checking the conversion and nothing else. Their weights are
    # large, so that attention and routing are sharp and a fault in either changes the next token.
    "tiny-olmoe": olmoe(
        hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, num_experts=8, num_experts_per_tok=2,
        vocab_size=512, initializer_range=0.15),
    "tiny-mixtral": mixtral(
        hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, num_local_experts=8, num_experts_per_tok=2,
        vocab_size=512, initializer_range=0.15),
    "tiny-qwen3": qwen3_moe(
        hidden_size=128, intermediate_size=256, moe_intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts=16,
        num_experts_per_tok=4, vocab_size=512, initializer_range=0.15),
}


def plan_tensors(config):
    """Every tensor as (name, shape, standard deviation); deviation None means a norm of ones."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or width // heads
    query, key = heads * head, config["num_key_value_heads"] * head
    kind = config["model_type"]
    experts = config.get("num_experts") or config["num_local_experts"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    block = "block_sparse_moe" if kind == "mixtral" else "mlp"
    deviation = config["initializer_range"]
    names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")

    plan = [("model.embed_tokens.weight", (config["vocab_size"], width), 1.0)]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        plan += [(p + "input_layernorm.weight", (width,), None),
                 (p + "self_attn.q_proj.weight", (query, width), deviation),
                 (p + "self_attn.k_proj.weight", (key, width), deviation),
                 (p + "self_attn.v_proj.weight", (key, width), deviation),
                 (p + "self_attn.o_proj.weight", (width, query), deviation)]
        if kind == "olmoe":
            plan += [(p + "self_attn.q_norm.weight", (query,), None),
                     (p + "self_attn.k_norm.weight", (key,), None)]
        if kind == "qwen3_moe":
            plan += [(p + "self_attn.q_norm.weight", (head,), None),
                     (p + "self_attn.k_norm.weight", (head,), None)]
        plan += [(p + "post_attention_layernorm.weight", (width,), None),
                 (p + f"{block}.gate.weight", (experts, width), deviation)]
        for expert in range(experts):
            q = p + f"{block}.experts.{expert}."
            plan += [(q + names[0] + ".weight", (inner, width), deviation),
                     (q + names[1] + ".weight", (inner, width), deviation),
                     (q + names[2] + ".weight", (width, inner), deviation)]
    return plan + [("model.norm.weight", (width,), None),
                   ("lm_head.weight", (config["vocab_size"], width), deviation)]


class NoiseSource:
    """bf16 noise cut from one fixed piece at a drawn offset, so that gigabytes take seconds."""

    PIECE = 1 << 22

    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)
        words = self.bits.random_raw(self.PIECE).astype("<u8").view(np.uint16)
        # Four uniforms in a sum: variance 4/12 of a step, near enough to a normal distribution.
        sums = words.reshape(-1, 4).astype(np.int32).sum(axis=1) - 2 * 0xFFFF
        self.unit = sums.astype(np.float32) * np.float32(np.sqrt(3.0) / 65536.0)
        self.rounded = {}

    def draw(self, shape, deviation):
        if deviation is None:
            return np.full(shape, 0x3F80, np.uint16)
        if deviation not in self.rounded:
            piece = hf_folder.f32_to_bf16(self.unit * np.float32(deviation))
            self.rounded[deviation] = np.concatenate([piece, piece])
        count, out = int(np.prod(shape)), []
        while count > 0:
            start, size = int(self.bits.random_raw()) % self.PIECE, min(count, self.PIECE)
            out.append(self.rounded[deviation][start:start + size])
            count -= size
        return np.concatenate(out).reshape(shape)


def byte_alphabet():
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [letters[b] for b in range(256)]


def make_tokenizer(size, seed):
    """Three special tokens, the bytes, and random merges up to the vocabulary size."""
    vocab = {token: i for i, token in enumerate(SPECIAL + byte_alphabet())}
    if size < len(vocab):
        raise SystemExit(f"--vocab {size} is too small; the byte alphabet needs {len(vocab)}")
    bits, merges = np.random.PCG64(seed), []
    pieces = list(vocab)[len(SPECIAL):]
    while len(vocab) < size:
        left, right = (pieces[int(bits.random_raw()) % len(pieces)] for _ in range(2))
        if left + right not in vocab and len(left + right) <= 8:
            vocab[left + right] = len(vocab)
            pieces.append(left + right)
            merges.append([left, right])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, token in enumerate(SPECIAL)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": hf_folder.QWEN2_SPLIT}, "behavior": "Isolated",
             "invert": False}, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("preset", choices=sorted(PRESETS))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--vocab", type=int)
    args = parser.parse_args()

    config = dict(PRESETS[args.preset])
    if args.layers:
        config["num_hidden_layers"] = args.layers
    if args.vocab:
        config["vocab_size"] = args.vocab
    tokenizer = make_tokenizer(config["vocab_size"], args.seed)

    args.out.mkdir(parents=True, exist_ok=True)
    for stale in args.out.glob("model-*.safetensors"):
        stale.unlink()
    plan, noise = plan_tensors(config), NoiseSource(args.seed)
    deviations = {name: deviation for name, _, deviation in plan}
    total = hf_folder.write_shards(args.out, [(name, shape) for name, shape, _ in plan],
                                   lambda name, shape: noise.draw(shape, deviations[name]))

    def write(name, value):
        text = json.dumps(value, indent=1, ensure_ascii=False)
        (args.out / name).write_text(text, encoding="utf-8")

    write("config.json", config)
    write("generation_config.json", {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0})
    write("tokenizer.json", tokenizer)
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0], "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False})
    print(f"{args.out}: {args.preset}, {len(plan)} tensors, {total / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
