#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in transformers on a GPU, random weights of true geometry, beside `switchyard bench latency --random`.

    bench/baselines/transformers_gpu.py [--jsonl FILE] [--models NAME,...] [--batches 1,8,64,256] [--prompts 512,4096]
                                        [--output-tokens 128]

bf16, experts_implementation="grouped_mm" (torch._grouped_mm), attention through SDPA. Rows tgN are N greedy steps of
`batch` sequences after a prompt of one token, with a StaticCache just long enough, a CUDA graph replayed for each step
with the choice of the next token inside: faster than generate(), whose host work it leaves out, and without
torch.compile. Rows ppN are a prompt of N random tokens, logits of the last position; eager and as a CUDA graph, the
better one counts. `mode` says which it was. Weights are made on the GPU by the library's own initialisation.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import transformers

# As in src/model/geometries.cpp.
GEOMETRIES = {
    "olmoe-1b-7b": dict(
        model_type="olmoe", hidden_size=2048, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
        vocab_size=50304, num_experts=64, num_experts_per_tok=8, intermediate_size=1024, norm_topk_prob=False,
        max_position_embeddings=4096),
    "qwen3-30b-a3b": dict(
        model_type="qwen3_moe", hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, vocab_size=151936, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
        intermediate_size=6144, norm_topk_prob=True, mlp_only_layers=[], max_position_embeddings=40960),
    "mixtral-8x7b": dict(
        model_type="mixtral", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=32000, num_local_experts=8, num_experts_per_tok=2, intermediate_size=14336, sliding_window=None,
        max_position_embeddings=32768),
}
BEGIN = time.monotonic()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jsonl", type=pathlib.Path)
    parser.add_argument("--models", default=",".join(GEOMETRIES))
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--prompts", default="512,4096")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: only to try the program")
    parser.add_argument("--layers", type=int, help="this many layers alone, to try the program")
    return parser.parse_args()


def make_model(name: str, options: argparse.Namespace):
    fields = dict(GEOMETRIES[name])
    if options.layers:
        fields["num_hidden_layers"] = options.layers
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa",
                                                              experts_implementation="grouped_mm")
    return model.eval().to(options.device)


def capture(work) -> torch.cuda.CUDAGraph:
    """The work as a graph, after it ran twice beside the main stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def seconds(work, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


class Decode:
    """`batch` sequences, a step at a time; each step takes the greedy choice of the last."""

    def __init__(self, model, batch: int, steps: int):
        self.model, self.batch = model, batch
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=steps + 16)
        self.token = torch.randint(0, model.config.vocab_size, (batch, 1), device=model.device)

    def step(self) -> None:
        out = self.model(input_ids=self.token, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.token.copy_(out.logits[:, -1].argmax(-1, keepdim=True))

    def rewind(self) -> None:
        self.cache.reset()

    def measure(self, steps: int, device: str) -> tuple[float, str]:
        self.step()
        self.rewind()
        try:
            run = capture(self.step).replay if device == "cuda" else self.step
            mode = "cuda graph" if device == "cuda" else "eager"
        except Exception as error:
            print(f"no graph: {type(error).__name__}: {str(error)[:200]}", flush=True)
            run, mode = self.step, "eager"
        self.rewind()
        run()  # the prompt of one token
        return self.batch * steps / seconds(lambda: [run() for _ in range(steps)], device), mode


def measure_prompt(model, tokens: int, device: str) -> tuple[list[float], str]:
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device=device)
    work = lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1)
    work()
    ways = {"eager": work}
    if device == "cuda":
        try:
            ways["cuda graph"] = capture(work).replay
        except Exception as error:
            print(f"no graph: {type(error).__name__}: {str(error)[:200]}", flush=True)
    rates = {mode: [tokens / seconds(run, device) for _ in range(4)][1:] for mode, run in ways.items()}
    best = max(rates, key=lambda mode: statistics.median(rates[mode]))
    return rates[best], best


class Record:
    def __init__(self, options: argparse.Namespace):
        self.file = open(options.jsonl, "w") if options.jsonl else None
        self.device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"

    def add(self, name: str, model, test: str, batch: int, rates: list[float], mode: str) -> None:
        row = {"engine": "transformers", "version": transformers.__version__, "torch": torch.__version__,
               "device": self.device, "random": name, "dtype": "bf16", "experts": "grouped_mm", "mode": mode,
               "weight_bytes": sum(p.numel() * p.element_size() for p in model.parameters()), "test": test,
               "batch": batch, "median_tokens_per_s": round(statistics.median(rates), 2),
               "tokens_per_s": [round(rate, 2) for rate in rates]}
        print(f"{name:14} {test:7} batch {batch:4}  {row['median_tokens_per_s']:10.1f} tokens/s  {mode} "
              f"[{time.monotonic() - BEGIN:.0f} s]", flush=True)
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


@torch.inference_mode()
def main() -> int:
    options, failed = parse(), False
    record = Record(options)
    for name in options.models.split(","):
        model = make_model(name, options)
        print(f"{name} made [{time.monotonic() - BEGIN:.0f} s]", flush=True)
        steps = options.output_tokens
        for kind, size in [("tg", b) for b in numbers(options.batches)] + [("pp", p) for p in numbers(options.prompts)]:
            try:
                if kind == "tg":
                    rate, mode = Decode(model, size, steps).measure(steps, options.device)
                    record.add(name, model, f"tg{steps}", size, [rate], mode)
                else:
                    rates, mode = measure_prompt(model, size, options.device)
                    record.add(name, model, f"pp{size}", 1, rates, mode)
            except torch.OutOfMemoryError as error:
                failed = True
                print(f"{name} {kind} {size}: {str(error)[:200]}", flush=True)
            if options.device == "cuda":
                torch.cuda.empty_cache()
        del model
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
