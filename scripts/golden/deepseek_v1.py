# SPDX-License-Identifier: Apache-2.0
"""Reference for DeepSeek-V1-MoE (model_type "deepseek"), which no class of transformers implements.

Published folders bring their own Python code. This model is written anew from the description of the
architecture: Llama's norm, rotary embedding, attention and MLP are taken from transformers, and only
the expert block below is ours. Its rules: softmax over all E experts in the model's type, the K best,
renormalised by (sum + 1e-20) only if norm_topk_prob, no scaling, plus one ungated shared MLP of width
n_shared_experts * F. Module names give exactly the tensor names of the published files.
Source: Dai et al. 2024, "DeepSeekMoE", arXiv 2401.06066.
"""

import copy
import dataclasses
import json
import pathlib

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import DynamicCache, LlamaConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)


@dataclasses.dataclass
class Output:
    """What a forward call returns; the field names follow transformers."""

    logits: torch.Tensor
    past_key_values: DynamicCache | None


def read_config(folder: pathlib.Path) -> LlamaConfig:
    """Reads config.json into a LlamaConfig; the expert keys become plain attributes."""
    values = json.loads((folder / "config.json").read_text())
    for key in ("architectures", "model_type", "torch_dtype"):
        values.pop(key)
    config = LlamaConfig(**values)
    config._attn_implementation = "eager"
    return config


def _mlp(config: LlamaConfig, width: int) -> LlamaMLP:
    narrow = copy.copy(config)
    narrow.intermediate_size = width
    return LlamaMLP(narrow)


class DeepseekGate(nn.Module):
    """Router: [T, D] to the K picks of each token; returns (logits, weights, ids) as Qwen's does."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.weight = nn.Parameter(torch.zeros(config.n_routed_experts, config.hidden_size))

    def forward(self, x: torch.Tensor):
        logits = nn.functional.linear(x, self.weight)
        scores = logits.softmax(dim=-1)  # In the model's type, unlike the other softmax routers.
        weights, ids = torch.topk(scores, self.top_k, dim=-1)
        if self.norm_topk_prob and self.top_k > 1:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return logits, weights, ids


class DeepseekMoe(nn.Module):
    """Routed experts plus the ungated shared MLP, both on the same normed input."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        width = config.moe_intermediate_size
        self.gate = DeepseekGate(config)
        self.experts = nn.ModuleList([_mlp(config, width) for _ in range(config.n_routed_experts)])
        self.shared_experts = _mlp(config, width * config.n_shared_experts)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        x = hidden.view(-1, hidden.shape[-1])
        _, weights, ids = self.gate(x)
        routed = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(ids == index)
            routed.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return (routed + self.shared_experts(x)).view_as(hidden)


class DeepseekLayer(nn.Module):
    """Pre-norm decoder layer; layers before first_k_dense_replace have a dense MLP."""

    def __init__(self, config: LlamaConfig, index: int):
        super().__init__()
        sparse = index >= config.first_k_dense_replace and index % config.moe_layer_freq == 0
        self.self_attn = LlamaAttention(config, index)
        self.mlp = DeepseekMoe(config) if sparse else _mlp(config, config.intermediate_size)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: torch.Tensor, **attention) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), **attention)[0]
        return x + self.mlp(self.post_attention_layernorm(x))


class DeepseekModel(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([DeepseekLayer(config, i) for i in range(config.num_hidden_layers)])
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def forward(self, input_ids: torch.Tensor, past: DynamicCache | None) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        seen = past.get_seq_length() if past is not None else 0
        positions = torch.arange(seen, seen + input_ids.shape[1])[None]
        mask = create_causal_mask(config=self.config, inputs_embeds=x, attention_mask=None,
                                  past_key_values=past, position_ids=positions)
        rope = self.rotary_emb(x, positions)
        for layer in self.layers:
            x = layer(x, attention_mask=mask, past_key_values=past, position_embeddings=rope)
        return self.norm(x)


class DeepseekForCausalLM(nn.Module):
    """The whole model; called like a causal model of transformers."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.model = DeepseekModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @classmethod
    def from_folder(cls, folder: pathlib.Path, dtype: torch.dtype) -> "DeepseekForCausalLM":
        """Loads every *.safetensors of the folder; a missing or unknown tensor is an error."""
        model = cls(read_config(folder))
        state = {}
        for path in sorted(folder.glob("*.safetensors")):
            if path.name != "golden.safetensors":
                state |= load_file(path)
        model.load_state_dict(state, strict=True)
        for parameter in model.parameters():  # Not model.to(): the rotary table stays in fp32.
            parameter.data = parameter.data.to(dtype)
        return model.eval()

    def forward(self, input_ids: torch.Tensor, past_key_values: DynamicCache | None = None,
                use_cache: bool = False) -> Output:
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        return Output(self.lm_head(self.model(input_ids, past_key_values)), past_key_values)
