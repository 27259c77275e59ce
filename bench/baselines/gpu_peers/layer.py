# SPDX-License-Identifier: Apache-2.0
"""What is measured: the shapes, loads, weights and inputs of bench/gpu_moe.cu, and the layer in fp32 to check against.

Two full copies of the weights and several inputs take turns, so that weights come from memory. Weights are normals over
the root of their fan-in, inputs normals, logits Gumbel noise over a popularity of rank^-zipf: the best K of them are a
draw without replacement. w13 is [E, gate | up, D], w2 [E, D, F], bf16.
"""

import dataclasses

import torch
import torch.nn.functional as F

from . import glue


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    experts: int
    top_k: int
    width: int
    ffn_width: int


SHAPES = (Shape("Mixtral-8x7B", 8, 2, 4096, 14336), Shape("Qwen3-30B-A3B", 128, 8, 2048, 768),
          Shape("OLMoE-1B-7B", 64, 8, 2048, 1024), Shape("DSV3-EP8", 32, 8, 7168, 2048))
LOADS = tuple((tokens, 0) for tokens in (1, 4, 16, 64, 256, 1024, 4096, 16384)) + ((256, 1),)
COPIES = 2


class Weights:
    def __init__(self, shape: Shape):
        generator = torch.Generator(device="cuda").manual_seed(11)
        normals = lambda *size: torch.empty(*size, dtype=torch.bfloat16, device="cuda").normal_(
            0, size[-1] ** -0.5, generator=generator)
        self.w13 = [normals(shape.experts, 2 * shape.ffn_width, shape.width) for _ in range(COPIES)]
        self.w2 = [normals(shape.experts, shape.width, shape.ffn_width) for _ in range(COPIES)]


class Cell:
    """One shape and load: inputs, the buffers that all peers share, and the expected result of the first input."""

    def __init__(self, shape: Shape, weights: Weights, tokens: int, zipf: float):
        self.shape, self.weights, self.tokens, self.zipf = shape, weights, tokens, zipf
        self.num_inputs = 8 if tokens <= 256 else 4 if tokens <= 1024 else 2
        generator = torch.Generator(device="cuda").manual_seed(1000 + tokens)
        bf16 = dict(dtype=torch.bfloat16, device="cuda")
        self.x = [torch.empty(tokens, shape.width, **bf16).normal_(generator=generator)
                  for _ in range(self.num_inputs)]
        self.logits = [self._draw_logits(generator) for _ in range(self.num_inputs)]
        self.routed = glue.Routed(tokens, shape.experts, shape.top_k)
        rows = self.routed.capacity
        self.rows, self.both = torch.empty(rows, shape.width, **bf16), torch.empty(rows, 2 * shape.ffn_width, **bf16)
        self.hidden, self.out = torch.empty(rows, shape.ffn_width, **bf16), torch.empty(rows, shape.width, **bf16)
        self.y = torch.empty(tokens, shape.width, **bf16)
        self._constants: dict[int, torch.Tensor] = {}
        self.hits = sum(len(self.picks(i)[1].unique()) for i in range(self.num_inputs)) / self.num_inputs
        self.expected = self._reference()

    def _draw_logits(self, generator: torch.Generator) -> torch.Tensor:
        noise = torch.rand(self.tokens, self.shape.experts, device="cuda", generator=generator).clamp(1e-9, 1 - 1e-7)
        rank = torch.arange(1, self.shape.experts + 1, device="cuda").float()
        return (-self.zipf * rank.log() - (-noise.log()).log()).contiguous()

    def w13(self, i: int) -> torch.Tensor:
        return self.weights.w13[i % COPIES]

    def w2(self, i: int) -> torch.Tensor:
        return self.weights.w2[i % COPIES]

    def picks(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and experts of each token, in stock operations."""
        weights, ids = torch.softmax(self.logits[i], -1).topk(self.shape.top_k, -1)
        return weights / weights.sum(-1, keepdim=True), ids

    def _reference(self) -> torch.Tensor:
        weights, ids = self.picks(0)
        y = torch.zeros(self.tokens, self.shape.width, device="cuda")
        for expert in ids.unique().tolist():
            token, pick = torch.where(ids == expert)
            gate, up = F.linear(self.x[0][token].float(), self.w13(0)[expert].float()).chunk(2, -1)
            out = F.linear(F.silu(gate) * up, self.w2(0)[expert].float())
            y.index_add_(0, token, out * weights[token, pick, None])
        return y

    def constant(self, value: int) -> torch.Tensor:
        """One integer on the device, the same tensor each time."""
        if value not in self._constants:
            self._constants[value] = torch.full((1,), value, dtype=torch.int32, device="cuda")
        return self._constants[value]

    def error(self, run) -> float:
        """Relative error (norm) of run(0) against the reference; a NaN where the peer left a value unwritten."""
        for buffer in (self.rows, self.both, self.hidden, self.out, self.y):
            buffer.fill_(float("nan"))
        result = run(0).float()
        torch.cuda.synchronize()
        return float((result - self.expected).norm() / self.expected.norm())

    def floor(self, read_tbs: float, peak_tflops: float) -> dict[str, float]:
        """As bench/gpu_moe.cu counts: bytes of the hit experts and of the rows, and the operations."""
        s = self.shape
        moved = self.hits * 6 * s.width * s.ffn_width + self.tokens * (s.width * 10 + s.experts * 4)
        memory = moved / read_tbs / 1e6
        flop = self.tokens * s.top_k * 6 * s.width * s.ffn_width / peak_tflops / 1e6
        return {"floor_us": max(memory, flop), "memory_us": memory, "flop_us": flop}
