#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a Hugging Face MoE folder to GGUF with the same weights, for llama.cpp.

    make_gguf.py FOLDER OUT.gguf [--outtype bf16|f32|q8_0] [--pre NAME]

Architectures: qwen3_moe, olmoe (own GGUF architectures) and mixtral (GGUF architecture `llama`).
bf16 keeps every matrix bit for bit, f32 widens them (exact), q8_0 quantises the matrices. Norms and
routers are f32, as llama.cpp's own converter stores them. A tensor without a place in the target
is an error: nothing is left out in silence.
"""

import argparse
import json
import pathlib
import re
import sys

import gguf
import hf_folder
import numpy as np

# Per layer: Hugging Face name, GGUF name.
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}
EXPERT_PATTERN = re.compile(
    r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight")
FUSED_PATTERN = re.compile(
    r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(gate_up_proj|down_proj)")
LAYER_PATTERN = re.compile(r"model\.layers\.(\d+)\.(.+)")


def fail(message):
    raise SystemExit(f"make_gguf: {message}")


class Geometry:
    """The numbers of config.json that the conversion needs, after refusing what llama.cpp's
    graph of the architecture would compute differently."""

    ARCH = {"qwen3_moe": "qwen3moe", "olmoe": "olmoe", "mixtral": "llama"}

    def __init__(self, config):
        self.kind = config.get("model_type")
        if self.kind not in self.ARCH:
            fail(f"config.json: model_type is {self.kind!r}; expected one of {sorted(self.ARCH)}")
        self.arch = self.ARCH[self.kind]
        self.layers = config["num_hidden_layers"]
        self.width = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head = config.get("head_dim") or self.width // self.heads
        self.experts = config.get("num_experts") or config.get("num_local_experts")
        self.picks = config["num_experts_per_tok"]
        self.inner = config["intermediate_size"]
        self.expert_inner = config.get("moe_intermediate_size") or self.inner
        self.vocab = config["vocab_size"]
        self.context = config["max_position_embeddings"]
        self.eps = config["rms_norm_eps"]
        rope = config.get("rope_parameters") or {}
        self.rope_base = config.get("rope_theta") or rope.get("rope_theta") or 10000.0
        self.tied = config.get("tie_word_embeddings", False)
        self._refuse(config, rope)

    def _refuse(self, config, rope):
        normalised = config.get("norm_topk_prob", self.kind == "mixtral")
        scaled = (config.get("rope_scaling")
                  or rope.get("rope_type", rope.get("type", "default")) != "default")
        refusals = {
            "hidden_act other than silu": config.get("hidden_act", "silu") != "silu",
            "rope scaling": bool(scaled),
            "attention biases": config.get("attention_bias", False),
            "clip_qkv": config.get("clip_qkv") is not None,
            "layers without experts": bool(config.get("mlp_only_layers"))
                                      or config.get("decoder_sparse_step", 1) != 1,
            f"norm_topk_prob {normalised} in {self.kind}": normalised != (self.kind != "olmoe"),
            "an olmoe head_dim other than hidden_size / heads":
                self.kind == "olmoe" and self.head * self.heads != self.width,
        }
        for what, found in refusals.items():
            if found:
                fail(f"config.json: {what} has no counterpart in llama.cpp's {self.arch} graph")


def unrotate(matrix, heads):
    """Rows of each head from halves (Hugging Face) to neighbouring pairs (GGUF `llama`), which is
    how that architecture's rope pairs them: row 2i is row i, row 2i+1 is row Z/2 + i."""
    rows, width = matrix.shape
    split = matrix.reshape(heads, 2, rows // heads // 2, width)
    return split.swapaxes(1, 2).reshape(rows, width)


class Plan:
    """Target tensors in order: name -> (shape, function that makes the stored Tensor)."""

    def __init__(self, folder, geometry):
        self.g = geometry
        self.source = folder.tensors
        self.targets = {}
        used = set()
        experts = {}
        for name in folder.tensors:
            if match := EXPERT_PATTERN.fullmatch(name):
                layer, expert, part = int(match[1]), int(match[2]), match[3]
                experts.setdefault((layer, part), {})[expert] = name
            elif match := FUSED_PATTERN.fullmatch(name):
                self._add_fused(int(match[1]), match[2], name)
            elif not self._add_plain(name):
                continue
            used.add(name)
        for (layer, part), names in sorted(experts.items()):
            self._add_stack(layer, part, names)
        if unknown := sorted(set(folder.tensors) - used):
            fail(f"{len(unknown)} tensors have no place in the target, first {unknown[0]}")
        self._require_complete()

    def _add_plain(self, name):
        tensor = self.source[name]
        if name in TOP_NAMES:
            if name == "lm_head.weight" and self.g.tied:
                return True
            self.targets[TOP_NAMES[name]] = (tensor.data.shape, lambda: tensor)
            return True
        match = LAYER_PATTERN.fullmatch(name)
        if match is None or match[2] not in LAYER_NAMES:
            return False
        target, make = f"blk.{match[1]}.{LAYER_NAMES[match[2]]}", lambda: tensor
        if self.g.arch == "llama" and match[2].startswith(("self_attn.q_", "self_attn.k_")):
            heads = self.g.heads if match[2].startswith("self_attn.q_") else self.g.kv_heads
            make = lambda: hf_folder.Tensor(tensor.dtype, unrotate(tensor.data, heads))
        self.targets[target] = (tensor.data.shape, make)
        return True

    def _add_stack(self, layer, part, names):
        if part not in EXPERT_NAMES:
            fail(f"unknown expert matrix {part} in layer {layer}")
        if sorted(names) != list(range(self.g.experts)):
            fail(f"layer {layer} has {len(names)} matrices {part}; expected {self.g.experts}")
        parts = [self.source[names[expert]] for expert in range(self.g.experts)]
        shape = (len(parts), *parts[0].data.shape)
        self.targets[f"blk.{layer}.{EXPERT_NAMES[part]}.weight"] = (
            shape, lambda: hf_folder.Tensor(parts[0].dtype, np.stack([p.data for p in parts])))

    def _add_fused(self, layer, part, name):
        """[E,2F,D] gate rows then up rows, and [E,D,F]."""
        tensor, inner = self.source[name], self.g.expert_inner
        if part == "down_proj":
            halves = {"ffn_down_exps": tensor.data}
        else:
            halves = {"ffn_gate_exps": tensor.data[:, :inner],
                      "ffn_up_exps": tensor.data[:, inner:]}
        for target, data in halves.items():
            self.targets[f"blk.{layer}.{target}.weight"] = (
                data.shape, lambda data=data: hf_folder.Tensor(tensor.dtype, data))

    def _require_complete(self):
        g = self.g
        query, key = g.heads * g.head, g.kv_heads * g.head
        expected = {"token_embd.weight": (g.vocab, g.width), "output_norm.weight": (g.width,)}
        if g.tied and g.arch == "olmoe":
            # This graph has no tied output: it gets a copy of the embedding.
            self.targets["output.weight"] = self.targets["token_embd.weight"]
        if not g.tied or g.arch == "olmoe":
            expected["output.weight"] = (g.vocab, g.width)
        for layer in range(g.layers):
            p = f"blk.{layer}."
            expected |= {
                p + "attn_norm.weight": (g.width,), p + "ffn_norm.weight": (g.width,),
                p + "attn_q.weight": (query, g.width), p + "attn_k.weight": (key, g.width),
                p + "attn_v.weight": (key, g.width), p + "attn_output.weight": (g.width, query),
                p + "ffn_gate_inp.weight": (g.experts, g.width),
                p + "ffn_gate_exps.weight": (g.experts, g.expert_inner, g.width),
                p + "ffn_up_exps.weight": (g.experts, g.expert_inner, g.width),
                p + "ffn_down_exps.weight": (g.experts, g.width, g.expert_inner)}
            if g.kind != "mixtral":
                norms = (query, key) if g.kind == "olmoe" else (g.head, g.head)
                expected |= {p + "attn_q_norm.weight": norms[:1],
                             p + "attn_k_norm.weight": norms[1:]}
        for name in sorted(expected.keys() | self.targets.keys()):
            found = self.targets.get(name, (None,))[0]
            if found != expected.get(name):
                fail(f"target tensor {name}: found {found}, expected {expected.get(name)}")


def add_tokenizer(writer, folder, geometry, pre):
    """Byte-level BPE from tokenizer.json; without one (or with another kind) the model gets none
    and can be timed by ids only."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    model = tokenizer.get("model", {})
    pre = pre or find_pre_tokenizer(tokenizer.get("pre_tokenizer"))
    if model.get("type") != "BPE" or pre is None:
        print("make_gguf: no byte-level BPE tokenizer that llama.cpp names; the model gets none "
              "(--pre NAME forces a name)", file=sys.stderr)
        writer.add_tokenizer_model("none")
        writer.add_vocab_size(geometry.vocab)
        return
    added = {entry["id"]: entry for entry in tokenizer.get("added_tokens", [])}
    by_id = {i: token for token, i in model["vocab"].items()}
    by_id |= {i: entry["content"] for i, entry in added.items()}
    tokens, types = [], []
    for i in range(geometry.vocab):
        tokens.append(by_id.get(i, f"[unused {i}]"))
        if i not in by_id:
            types.append(gguf.TokenType.UNUSED)
        elif i in added:
            special = added[i].get("special", False)
            types.append(gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED)
        else:
            types.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge)
                             for merge in model["merges"]])
    writer.add_add_bos_token(False)


def find_pre_tokenizer(spec):
    parts = (spec or {}).get("pretokenizers", [spec] if spec else [])
    kinds = [part["type"] for part in parts]
    if kinds == ["ByteLevel"] and parts[0].get("use_regex", True):
        return "gpt-2"
    if kinds == ["Split", "ByteLevel"]:
        known = parts[0]["pattern"].get("Regex") == hf_folder.QWEN2_SPLIT
        return "qwen2" if known else None
    return None


def add_special_ids(writer, folder, config):
    adders = {"bos_token_id": writer.add_bos_token_id, "eos_token_id": writer.add_eos_token_id,
              "pad_token_id": writer.add_pad_token_id}
    for key, add in adders.items():
        value = config.get(key)
        value = value[0] if isinstance(value, list) else value
        if value is not None:
            add(value)
    path = folder / "tokenizer_config.json"
    template = json.loads(path.read_text()).get("chat_template") if path.exists() else None
    if isinstance(template, str):
        writer.add_chat_template(template)


def add_geometry(writer, g, file_type):
    writer.add_name("converted from a Hugging Face folder")
    writer.add_file_type(file_type)
    writer.add_block_count(g.layers)
    writer.add_context_length(g.context)
    writer.add_embedding_length(g.width)
    writer.add_feed_forward_length(g.inner)
    writer.add_head_count(g.heads)
    writer.add_head_count_kv(g.kv_heads)
    writer.add_key_length(g.head)
    writer.add_value_length(g.head)
    writer.add_rope_dimension_count(g.head)
    writer.add_rope_freq_base(g.rope_base)
    writer.add_layer_norm_rms_eps(g.eps)
    writer.add_expert_count(g.experts)
    writer.add_expert_used_count(g.picks)
    if g.arch == "qwen3moe":
        writer.add_expert_feed_forward_length(g.expert_inner)
    if g.arch == "llama":
        writer.add_vocab_size(g.vocab)


def stored_type(name, outtype):
    if "norm" in name or "ffn_gate_inp" in name or outtype == "f32":
        return gguf.GGMLQuantizationType.F32
    if outtype == "bf16":
        return gguf.GGMLQuantizationType.BF16
    return gguf.GGMLQuantizationType.Q8_0


def encode(tensor, kind):
    if kind == gguf.GGMLQuantizationType.BF16:
        return tensor.bf16()
    values = tensor.f32()
    return values if kind == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(values, kind)


def byte_count(shape, kind):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if shape[-1] % block != 0:
        fail(f"rows of {shape[-1]} do not divide into blocks of {block} ({kind.name})")
    return int(np.prod(shape)) // block * size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--outtype", choices=["bf16", "f32", "q8_0"], default="bf16")
    parser.add_argument("--pre", help="llama.cpp's name of the pre-tokenizer, if not recognised")
    args = parser.parse_args()

    folder = hf_folder.ModelFolder(args.folder)
    geometry = Geometry(folder.config)
    plan = Plan(folder, geometry)
    if args.outtype == "bf16" and any(t.dtype != "BF16" for t in folder.tensors.values()):
        print("make_gguf: some source tensors are not bf16 and are rounded", file=sys.stderr)

    file_types = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f32": gguf.LlamaFileType.ALL_F32,
                  "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(args.out, geometry.arch)
    add_geometry(writer, geometry, file_types[args.outtype])
    add_tokenizer(writer, args.folder, geometry, args.pre)
    add_special_ids(writer, args.folder, folder.config)

    kinds = {name: stored_type(name, args.outtype) for name in plan.targets}
    for name, (shape, _) in plan.targets.items():
        writer.add_tensor_info(name, shape, np.dtype(np.float32), byte_count(shape, kinds[name]),
                               kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, (_, make) in plan.targets.items():
        writer.write_tensor_data(np.ascontiguousarray(encode(make(), kinds[name])))
    writer.close()
    print(f"{args.out}: {geometry.arch}, {len(plan.targets)} tensors, {args.outtype}, "
          f"{args.out.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
