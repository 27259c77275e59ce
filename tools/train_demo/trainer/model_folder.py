# SPDX-License-Identifier: Apache-2.0
"""Writes a model as a Hugging Face folder of the Qwen3-MoE layout: bf16, several shards."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from trainer.config import ARCHITECTURE, END_OF_TEXT, END_OF_TURN, SPECIAL_TOKENS
from trainer.weights import publish

_SHARDS = 3
_BYTES_PER_WEIGHT = 2
_SLACK = 1.01  # a shard may be a little larger than its even share
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _split(tensors: dict[str, Tensor], total: int) -> list[dict[str, Tensor]]:
    """Neighbouring tensors in shards of about equal size."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        tensor_bytes = tensor.numel() * _BYTES_PER_WEIGHT
        if size + tensor_bytes > total / _SHARDS * _SLACK and len(shards) < _SHARDS:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor_bytes
    return shards


def _write_weights(state: dict[str, Tensor], out: Path) -> None:
    tensors = publish(state)
    total = sum(tensor.numel() * _BYTES_PER_WEIGHT for tensor in tensors.values())
    shards = _split(tensors, total)
    files: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, out / name, metadata={"format": "pt"})
        files.update(dict.fromkeys(shard, name))
    index = {"metadata": {"total_size": total}, "weight_map": files}
    _write_json(out / "model.safetensors.index.json", index)


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TURN, "pad_token_id": END_OF_TEXT, "decoder_sparse_step": 1,
        "hidden_act": "silu", "initializer_range": 0.02, "intermediate_size": 512,
        "max_window_layers": ARCHITECTURE.num_hidden_layers, "mlp_only_layers": [],
        "norm_topk_prob": True, "output_router_logits": False, "rope_scaling": None,
        "router_aux_loss_coef": 0.005, "sliding_window": None, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
        **asdict(ARCHITECTURE),
    }


def _generation_config() -> dict[str, Any]:
    return {"bos_token_id": END_OF_TEXT, "pad_token_id": END_OF_TEXT,
            "eos_token_id": [END_OF_TURN, END_OF_TEXT], "do_sample": True, "temperature": 0.6,
            "top_p": 0.9, "top_k": 40}


def _tokenizer_config() -> dict[str, Any]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
             "special": True}
    text, start, end = SPECIAL_TOKENS
    return {
        "added_tokens_decoder": {str(i): {"content": token, **plain}
                                 for i, token in enumerate(SPECIAL_TOKENS)},
        "add_prefix_space": False, "bos_token": None, "eos_token": end, "pad_token": text,
        "unk_token": None, "additional_special_tokens": [start, end],
        "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "model_max_length": ARCHITECTURE.max_position_embeddings,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def write_model(state: dict[str, Tensor], tokenizer: Path, out: Path) -> None:
    """Writes weights, index, configurations and tokenizer into an existing folder."""
    _write_weights(state, out)
    _write_json(out / "config.json", _config())
    _write_json(out / "generation_config.json", _generation_config())
    _write_json(out / "tokenizer_config.json", _tokenizer_config())
    shutil.copyfile(tokenizer, out / "tokenizer.json")
