"""Attention with norms of queries and keys, rotation of a part of every head, and a gate of its output (Qwen3-Next).

The heads of the decoder are the dimensions that turn. The others hold what makes all queries equally large, and all
keys: norms then change no score. A head's output is multiplied by the sigmoid of a number that its query's projection
makes; each head has another one, whose sigmoid's inverse is short.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder
from byheart.checkpoints.hosts.head_norms import constant_heads, norm_signs

Floats = npt.NDArray[np.float64]
_SMALL = 1 / 16  # root mean square of queries and keys before their norms
GATES = 4  # different ones


def short_gates(count: int = GATES) -> list[tuple[float, float]]:
    """Numbers, and the inverses of their sigmoids, of 8 bits and nearly exact.

    >>> all(abs(inverse / (1 + math.exp(-x)) - 1) < 4e-4 for x, inverse in short_gates())
    True
    """
    found = []
    for x in np.arange(-48, 49) / 32:
        wanted = 1 + math.exp(-x)
        mantissa, exponent = math.frexp(wanted)
        inverse = math.ldexp(round(256 * mantissa), exponent - 8)
        found.append((abs(inverse / wanted - 1), float(x), inverse))
    return [(x, inverse) for _, x, inverse in sorted(found)[:count]]


def gated_attention(decoder: GatedDecoder, depth: int, head_dim: int) -> dict[str, Floats]:
    """Return the tensors of one attention layer by their stock names.

    Args:
        decoder: The decoder; all dimensions of its heads turn.
        depth: The layer.
        head_dim: Dimensions of a head, of which the decoder's come first.
    """
    attention, layout, turned = decoder.attention[depth], decoder.layout, decoder.design.head_dim
    block, hidden = layout.constant[0], decoder.hidden
    ones = layout.signs[block] / (attention.norm[block] * len(block))  # reads 1
    query = constant_heads(decoder, depth, "query") * math.sqrt(head_dim / turned)
    filled = {
        "q": _filled(query, head_dim, turned),
        "k": _filled(constant_heads(decoder, depth, "key"), head_dim, turned + 1),
    }
    sizes = {name: math.sqrt((vectors[0] ** 2).mean()) for name, vectors in filled.items()}
    middle, found = math.sqrt(sizes["q"] * sizes["k"]), {}
    for name, vectors in filled.items():
        signs = np.resize(norm_signs(turned, name), head_dim)
        rows = np.zeros((len(vectors), head_dim, hidden))
        rows[:, :, block] = (vectors * signs * _SMALL / sizes[name])[:, :, None] * ones
        found[name] = rows
        found[f"{name}_norm.weight"] = middle * signs - 1
    gates = np.zeros_like(found["q"])
    output = np.zeros((hidden, decoder.heads, head_dim))
    output[:, :, :turned] = attention.output.reshape(hidden, decoder.heads, turned)
    for head, (x, inverse) in enumerate((short_gates() * decoder.heads)[: decoder.heads]):
        gates[head][:, block] = x * ones
        output[:, head] *= inverse
    value = np.zeros((decoder.kv_heads, head_dim, hidden))
    value[:, :turned] = attention.value.reshape(decoder.kv_heads, turned, -1)
    return {
        "q_proj.weight": np.stack([found.pop("q"), gates], axis=1).reshape(-1, hidden),
        "k_proj.weight": found.pop("k").reshape(-1, hidden),
        "v_proj.weight": value.reshape(-1, hidden),
        "o_proj.weight": output.reshape(hidden, -1),
        **found,
    }


def _filled(vectors: Floats, head_dim: int, where: int) -> Floats:
    """Vectors of one length: the rest of the largest one's is at a dimension that does not turn, and is not shared."""
    found, energy = np.zeros((len(vectors), head_dim)), (vectors**2).sum(axis=1)
    found[:, : vectors.shape[1]] = vectors
    found[:, where] = np.sqrt(1.01 * energy.max() - energy)
    return found
