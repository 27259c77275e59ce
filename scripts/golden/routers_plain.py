# SPDX-License-Identifier: Apache-2.0
"""Routers from their papers' formulas, in numpy and f64. Equal values go to the lower index."""

import math

import numpy as np


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def best(values: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest of each row by falling value."""
    return np.argsort(-values, axis=1, kind="stable")[:, :k]


def softmax_top_k(z: np.ndarray, k: int):
    expert = best(z, k)
    return expert, np.take_along_axis(softmax(z), expert, 1)


def device_limited(z: np.ndarray, k: int, most: int, device_of: list):
    """Top-k among the experts of the `most` devices whose best experts score highest."""
    devices = np.array(device_of)
    score = np.stack([z[:, devices == d].max(1) for d in range(devices.max() + 1)], 1)
    kept = best(score, most)
    allowed = (devices[None, :, None] == kept[:, None, :]).any(2)
    expert = best(np.where(allowed, z.astype(np.float64), -np.inf), k)
    return expert, np.take_along_axis(softmax(z), expert, 1)


def philox(counter: list, key: list) -> list:
    """Philox4x32-10, Salmon et al. 2011."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        low = 0xFFFFFFFF
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & low, (a >> 32) ^ counter[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter


def words(place: dict, t: int, use: int, block: int) -> list:
    """The random words of a token: see src/moe/route/draw.h."""
    token, seed = place["first_token"] + t, place["seed"]
    low = 0xFFFFFFFF
    return philox([token & low, token >> 32, block | use << 28, place["layer"]], [seed & low, seed >> 32])


def gshard_top_2(z: np.ndarray, place):
    """place None: the second expert always stays."""
    expert, weight = softmax_top_k(z, 2)
    weight = weight / weight.sum(1, keepdims=True)
    for t in range(len(z)):
        if place and not 2 * weight[t, 1] > (words(place, t, 2, 0)[0] >> 8) / 2**24:
            expert[t, 1], weight[t, 1] = -1, 0
    return expert, weight


def normal(place: dict, t: int, e: int) -> float:
    """Box and Muller 1958, from doubles of 53 bits."""
    w = words(place, t, 1, e // 2)
    unit = lambda high, low: ((high << 21) ^ (low >> 11)) * 2.0**-53
    radius, angle = math.sqrt(-2 * math.log(1 - unit(w[0], w[1]))), 2 * math.pi * unit(w[2], w[3])
    return radius * (math.cos(angle) if e % 2 == 0 else math.sin(angle))


def squared_variation(x: np.ndarray) -> float:
    return float(x.var() / (x.mean() ** 2 + 1e-10))


def noisy_top_k(z: np.ndarray, noise_logits, factor: float, k: int, place: dict) -> dict:
    tokens, experts = z.shape
    ones = np.ones_like(z, dtype=np.float64)
    deviation = factor * (ones if noise_logits is None else np.log1p(np.exp(noise_logits)) + 0.01)
    noisy = z + deviation * np.array([[normal(place, t, e) for e in range(experts)] for t in range(tokens)])
    expert = best(noisy, k)
    weight = softmax(np.take_along_axis(noisy, expert, 1))
    importance, load = np.zeros(experts), np.zeros(experts)
    for t in range(tokens):
        for e in range(experts):
            others = np.sort(np.delete(noisy[t], e))[::-1]  # their k-th largest must be beaten
            load[e] += 0.5 * math.erfc(-(z[t, e] - others[k - 1]) / deviation[t, e] / math.sqrt(2))
        np.add.at(importance, expert[t], weight[t])
    return {"expert": expert, "weight": weight, "importance": importance, "load": load,
            "importance_variation": squared_variation(importance), "load_variation": squared_variation(load)}


def expert_choice(z: np.ndarray, per_token: int):
    """[T, E]: a token's experts by falling weight, then -1."""
    tokens, experts = z.shape
    score = softmax(z).astype(np.float32)
    capacity = min(tokens, -(-tokens * per_token // experts))
    expert, weight = np.full((tokens, experts), -1), np.zeros((tokens, experts))
    taken = [[] for _ in range(tokens)]
    for e in range(experts):
        for t in np.argsort(-score[:, e], kind="stable")[:capacity]:
            taken[t].append(e)
    for t, experts_of in enumerate(taken):
        for i, e in enumerate(sorted(experts_of, key=lambda e: (-score[t, e], e))):
            expert[t, i], weight[t, i] = e, score[t, e]
    return expert, weight
