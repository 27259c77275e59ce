#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in transformers on a GPU, random weights of true geometry, beside `switchyard bench latency --random`.

    bench/baselines/transformers_gpu.py [--jsonl FILE] [--models NAME,...] [--batches 1,8,64,256] [--prompts 512,4096]
                                        [--output-tokens 128] [--spread 0.5] [--uneven 1,2]

bf16, experts_implementation="grouped_mm" (torch._grouped_mm), attention through SDPA. Rows tgN are N greedy steps of
`batch` sequences after a prompt of one token, with a StaticCache just long enough, a CUDA graph replayed for each step
with the choice of the next token inside: faster than generate(), whose host work it leaves out, and without
torch.compile. Rows ppN are a prompt of N random tokens, logits of the last position; eager and as a CUDA graph, the
better one counts. `mode` says which it was. Weights are of the same distribution as ours (src/model/cuda/weights.cpp), made
by the library first, then by initialise(). Rows ppN have the load that came of them, counted in a run apart:
experts_touched and load_imbalance (hottest over mean) of a layer, means over layers. The first prompt is measured at each
spread of --uneven as well.
"""

import argparse
import json
import math
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
    parser.add_argument("--spread", type=float, default=0.5, help="deviations between the experts' mean logits")
    parser.add_argument("--uneven", default="1,2", help="spreads at which the first prompt is measured as well")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: only to try the program")
    parser.add_argument("--layers", type=int, help="this many layers alone, to try the program")
    parser.add_argument("--expert-width", type=int, help="narrower experts, to try the program: loads stay as they are")
    return parser.parse_args()


def make_model(name: str, options: argparse.Namespace):
    fields = dict(GEOMETRIES[name])
    if options.layers:
        fields["num_hidden_layers"] = options.layers
    if options.expert_width:
        fields["moe_intermediate_size" if "moe_intermediate_size" in fields else "intermediate_size"] = options.expert_width
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa",
                                                              experts_implementation="grouped_mm")
    initialise(model, options.spread)
    return model.eval().to(options.device)


def initialise(model, spread: float) -> None:
    """Norms 1; matrices uniform, variance 1 / inputs (last dimension, experts' as well); those that add to the residual stream
    1 / (2 L) of it. Embeddings have variance 1 and share `spread` times one row."""
    to_residual = 0.5 / model.config.num_hidden_layers
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.fill_(1)
        elif "embed_tokens" in name:
            common = torch.empty(weight.shape[1], device=weight.device).uniform_(-math.sqrt(3), math.sqrt(3))
            weight.uniform_(-math.sqrt(3), math.sqrt(3)).add_((spread * common).to(weight.dtype))
        else:
            adds = "o_proj" in name or "down_proj" in name
            bound = math.sqrt(3 * (to_residual if adds else 1) / weight.shape[-1])
            weight.uniform_(-bound, bound)


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


class Loads:
    """Experts touched, and hottest over mean, of every layer that runs while it watches."""

    def __init__(self, model):
        self.routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
        self.touched: list[int] = []
        self.imbalance: list[float] = []

    def __enter__(self):
        self.hooks = [router.register_forward_hook(self.count) for router in self.routers]
        return self

    def __exit__(self, *_) -> None:
        for hook in self.hooks:
            hook.remove()

    def count(self, router, _, outputs) -> None:
        rows = torch.bincount(outputs[2].flatten(), minlength=router.num_experts)
        self.touched.append(int((rows > 0).sum()))
        self.imbalance.append(float(rows.max() * rows.numel() / rows.sum()))

    def fields(self) -> dict:
        return {"experts_touched": round(statistics.mean(self.touched), 2),
                "load_imbalance": round(statistics.mean(self.imbalance), 3)}


def prompt_loads(model, tokens: int, device: str) -> dict:
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device=device)
    with Loads(model) as loads:
        model(input_ids=ids, use_cache=False, logits_to_keep=1)
    layers = [(layer, loads.touched[layer], loads.imbalance[layer]) for layer in (0, len(loads.touched) // 2, -1)]
    print(f"prompt of {tokens}: " + "; ".join(f"layer {layer}: {touched} experts touched, hottest over mean {worst:.2f}"
                                              for layer, touched, worst in layers), flush=True)
    return loads.fields()


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
        self.spread = options.spread  # of the weights at hand

    def add(self, name: str, model, test: str, batch: int, rates: list[float], mode: str, **more) -> None:
        row = {"engine": "transformers", "version": transformers.__version__, "torch": torch.__version__,
               "device": self.device, "random": name, "random_spread": self.spread, "dtype": "bf16", "experts": "grouped_mm", "mode": mode,
               "weight_bytes": sum(p.numel() * p.element_size() for p in model.parameters()), "test": test,
               "batch": batch, **more, "median_tokens_per_s": round(statistics.median(rates), 2),
               "tokens_per_s": [round(rate, 2) for rate in rates]}
        print(f"{name:14} {test:7} batch {batch:4}  {row['median_tokens_per_s']:10.1f} tokens/s  {mode} "
              f"[{time.monotonic() - BEGIN:.0f} s]", flush=True)
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def tests_of(options: argparse.Namespace) -> list[tuple[str, int, float]]:
    """Kind, batch or tokens, spread of the weights."""
    prompts = numbers(options.prompts)
    usual = [("tg", batch, options.spread) for batch in numbers(options.batches)]
    usual += [("pp", tokens, options.spread) for tokens in prompts]
    return usual + [("pp", tokens, float(spread)) for tokens in prompts[:1] for spread in options.uneven.split(",") if spread]


@torch.inference_mode()
def main() -> int:
    options, failed = parse(), False
    record = Record(options)
    for name in options.models.split(","):
        model = make_model(name, options)
        print(f"{name} made [{time.monotonic() - BEGIN:.0f} s]", flush=True)
        record.spread, steps = options.spread, options.output_tokens
        for kind, size, spread in tests_of(options):
            if spread != record.spread:
                initialise(model, spread)
                record.spread = spread
            try:
                if kind == "tg":
                    rate, mode = Decode(model, size, steps).measure(steps, options.device)
                    record.add(name, model, f"tg{steps}", size, [rate], mode)
                else:
                    loads = prompt_loads(model, size, options.device)
                    rates, mode = measure_prompt(model, size, options.device)
                    record.add(name, model, f"pp{size}", 1, rates, mode, **loads)
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
