"""Random small networks in the format of a file: every layer, pattern, kind of attention, reading and readout."""

from __future__ import annotations

import random
from typing import Any

Json = Any
WEIGHTS = [-3, -2, -1, 1, 2, 3, "0x1p-1", "-0x3p-2", "0x1p70", 5]


def number(rng: random.Random) -> Json:
    return rng.choice(WEIGHTS[:8]) if rng.random() < 0.9 else rng.choice(WEIGHTS)


def matrix(rng: random.Random, rows: int, columns: int, density: float = 0.7) -> Json:
    cells = [[[j, number(rng)] for j in range(columns) if rng.random() < density] for _ in range(rows)]
    return {"columns": columns, "rows": cells}


def vector(rng: random.Random, length: int) -> Json:
    return [rng.choice([0, number(rng)]) for _ in range(length)]


def head(rng: random.Random, width: int, kind: str) -> Json:
    size, score = rng.randint(1, 2), rng.randint(1, 2)
    given = {"value": matrix(rng, size, width), "output": matrix(rng, width, size), "key": None, "query": None}
    if kind != "uniform":
        density = rng.choice([0, 0.5])
        given |= {"key": matrix(rng, score, width, density), "query": matrix(rng, score, width, 0.5)}
    return given


def layer(rng: random.Random, name: str, width: int, out: int, kinds: list[str], starry: bool) -> Json:
    hidden = rng.randint(1, 3)
    if name == "affine":
        bias = rng.choice([None, vector(rng, out)])
        return {"layer": name, "weight": matrix(rng, out, width), "bias": bias, "relu": rng.random() < 0.5}
    if name == "threshold":
        return {"layer": name, "weight": matrix(rng, out, width), "bias": vector(rng, out)}
    if name == "residual":
        one, two = matrix(rng, hidden, width), matrix(rng, width, hidden)
        biases = {"bias1": vector(rng, hidden), "bias2": vector(rng, width)}
        return {"layer": name, "weight1": one, "weight2": two, **biases}
    kind = rng.choice(kinds)
    pattern = rng.choice(["full", "causal", *(["star-in", "star-out"] if starry else [])])
    heads = [head(rng, width, kind) for _ in range(rng.randint(1, 2))]
    return {"layer": "attention", "kind": kind, "pattern": pattern, "heads": heads}


def network(seed: int, n: int, width: int, softmax: bool = False) -> Json:
    """A network for rows of n tokens with `width` whole numbers from 0 to 3 each."""
    rng = random.Random(f"network {seed} {n} {width}")
    layers: list[Json] = []
    kinds = ["uniform", "hardmax"] if not softmax else ["softmax", "uniform"]
    if rng.random() < 0.3:
        strides = [4**k for k in range(width)]
        table, width = matrix(rng, rng.choice([4, 4 ** len(strides)]), 3), 3
        layers.append({"layer": "embedding", "table": table, "strides": strides})
    hub = rng.choice([None, None, "start", "end"])
    read = rng.choice(["last", "each", "pooled"])
    for step in range(rng.randint(1, 4)):
        if hub and step == 1:
            layers.append({"layer": "global-token", "stream": vector(rng, width), "place": hub})
        names = ["affine", "residual", "attention", "attention", *([] if softmax else ["threshold"])]
        out = rng.randint(1, 3)
        chosen = layer(rng, rng.choice(names), width, out, kinds, bool(hub) and step >= 1)
        width = out if chosen["layer"] in ("affine", "threshold") else width
        layers.append(chosen)
    tokens = n + any(part["layer"] == "global-token" for part in layers)
    if read == "pooled":
        pool = rng.random() < 0.5
        layers.append(
            {"layer": "pool", "width": width} if pool else {"layer": "flatten", "tokens": tokens, "width": width}
        )
        width = width if pool else tokens * width
    decode, classes = rng.choice(["value", "argmax"]), rng.randint(2, 4)
    if softmax:
        decode = "argmax"
    out = 1 if decode == "value" else classes
    final = layer(rng, "affine", width, out, kinds, False)
    layers.append(final | {"relu": False})
    readout = {
        "decode": decode,
        "classes": 60 if decode == "value" else classes,
        "offset": -30 if decode == "value" else 0,
    }
    return {"layers": layers, "read": read, "readout": readout, "stages": []}
