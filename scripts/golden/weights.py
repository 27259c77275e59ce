# SPDX-License-Identifier: Apache-2.0
"""Random weights for the tiny models, and the file layouts that they are written in.

Values are normal with a spread that keeps activations near 1, and are rounded to bf16, so that an
F32 file and a BF16 file hold the same numbers.
"""

import json
import math
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from golden.common import write_json
from golden.deepseek_v1 import DeepseekForCausalLM, read_config
from golden.family_table import Family

SHARD_BYTES = 90_000  # About a third of a tiny model in bf16.


def random_model(family: Family, folder: pathlib.Path):
    """Builds the model of folder/config.json and fills it, tensor by tensor in the order of names."""
    if family.name == "deepseek":
        model = DeepseekForCausalLM(read_config(folder))
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    generator = torch.Generator().manual_seed(family.seed)
    for name, parameter in sorted(model.named_parameters()):
        values = _draw(name, parameter.shape, family, generator)
        parameter.data.copy_(values.to(torch.bfloat16).float())
    return model.eval()


def _draw(name: str, shape: torch.Size, family: Family, generator: torch.Generator) -> torch.Tensor:
    if "norm" in name:
        return 0.6 + 0.8 * torch.rand(shape, generator=generator)
    normal = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return 0.3 * normal
    if "embed_tokens" in name:
        return family.embed_std * normal
    if "lm_head" in name:
        return family.head_std * normal
    fan_in = math.sqrt(shape[-1])
    if "router" in name or name.endswith(("mlp.gate.weight", "expert_gate.weight")):
        return 1.5 * normal / fan_in
    if "q_proj" in name or "k_proj" in name:
        return 1.5 * normal / fan_in
    if "down_proj" in name or "output_linear" in name:
        return 2.5 * family.out_gain * normal / fan_in
    if "o_proj" in name:
        return family.out_gain * normal / fan_in
    return normal / fan_in


def write_classic(model, path: pathlib.Path, dtype: torch.dtype) -> None:
    """Writes one file with the names that published folders use."""
    save_file(_sorted(classic_tensors(model), dtype), path, metadata={"format": "pt"})


def classic_tensors(model) -> dict:
    """The tensors under their published names; transformers itself makes the names."""
    if isinstance(model, DeepseekForCausalLM):
        return dict(model.state_dict())
    return _saved_by_reference(model, save_original_format=True)


def write_layout(model, layout: str, folder: pathlib.Path, config: dict) -> dict:
    """Writes the folder of one further layout in bf16 and returns its entry for golden.json."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if layout == "fused":
        tensors = _sorted(_saved_by_reference(model, save_original_format=False), torch.bfloat16)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        _write_v5_config(model, folder)
        what = "one tensor for all experts, as save_pretrained(save_original_format=False) writes it"
    else:
        _write_shards(_sorted(classic_tensors(model), torch.bfloat16), folder)
        write_json(folder / "config.json", config | {"torch_dtype": "bfloat16"})
        what = "classic names in several files with an index"
    return {"folder": layout, "dtype": "BF16", "what": what}


def _sorted(tensors: dict, dtype: torch.dtype) -> dict:
    return {name: tensors[name].to(dtype).contiguous() for name in sorted(tensors)}


def _saved_by_reference(model, save_original_format: bool) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, save_original_format=save_original_format)
        return load_file(pathlib.Path(scratch) / "model.safetensors")


def _write_v5_config(model, folder: pathlib.Path) -> None:
    """Leaves the config as save_pretrained spells it: rope_parameters, dtype, transformers_version."""
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        saved = json.loads((pathlib.Path(scratch) / "config.json").read_text())
    write_json(folder / "config.json", saved | {"dtype": "bfloat16"})


def _write_shards(tensors: dict, folder: pathlib.Path) -> None:
    """Fills files up to SHARD_BYTES in an order that parts gate, up and down of one expert."""
    order = sorted(tensors, key=lambda name: (name.split(".")[-2], name))
    parts, size = [{}], 0
    for name in order:
        if size > SHARD_BYTES and len(parts) < 3:
            parts, size = [*parts, {}], 0
        parts[-1][name] = tensors[name]
        size += tensors[name].nbytes
    files = [f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))]
    for file, part in zip(files, parts):
        save_file(part, folder / file, metadata={"format": "pt"})
    where = {name: file for file, part in zip(files, parts) for name in part}
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})
