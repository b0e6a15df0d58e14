"""Norms of queries and keys, one per head: Qwen3 has them, and so have Qwen3-MoE and Gemma 3.

The matrices give directions at a small size, the norms' weights sizes and signs: without the norms no score is left.
All queries have the size that the largest needs; the others have the rest of their size at a frequency where the key
is zero.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from byheart.checkpoints.hosts.description import GatedDecoder
from byheart.checkpoints.hosts.looking_back import unused_frequency

Floats = npt.NDArray[np.float64]
_SMALL = 1 / 16  # root mean square of queries and keys before their norms, or twice that
_BESIDE_EPSILON = 8.0  # the same where epsilon is large


def add_head_norms(decoder: GatedDecoder, tensors: dict[str, Floats], stretch: float = 1.0) -> None:
    """Rewrite the queries and keys of all layers for their own norms, and add the norms' weights.

    Args:
        decoder: The decoder.
        tensors: Its tensors under Llama's names; changed in place.
        stretch: What scores lose beside head_dim^-1/2: Gemma 3 divides by another number.
    """
    d = decoder.design.head_dim
    for i in range(len(decoder.stages)):
        prefix = f"model.layers.{i}.self_attn."
        query, key = constant_heads(decoder, i, "query"), constant_heads(decoder, i, "key")
        weights = decoder.attention[i].query.reshape(*query.shape, -1) * _louder(query, key)
        query = _fill_up(decoder, i, tensors, query * _louder(query, key)[:, :, 0], weights.reshape(-1, decoder.hidden))
        sizes = {name: np.sqrt((vectors**2).mean(axis=1)) for name, vectors in (("q", query), ("k", key))}
        # Both norms get the geometric middle of what queries and keys need, and signs that the matrices undo.
        middle = math.sqrt(sizes["q"].max() * stretch * sizes["k"][0])
        for name in "qk":
            size = sizes[name]
            least = _SMALL if decoder.design.norm_gain == 1 else _BESIDE_EPSILON
            small = least * (1 + np.arange(len(size)) % 2)  # neighbours differ: a norm over all heads shows
            factor = np.divide(small, size, out=np.zeros_like(size), where=size > 0)
            weight = tensors[f"{prefix}{name}_proj.weight"]
            signs = norm_signs(d, name)
            signed = np.outer(factor, signs).reshape(-1, 1)
            tensors[f"{prefix}{name}_proj.weight"] = weight * signed
            tensors[f"{prefix}{name}_norm.weight"] = middle * signs


def _louder(query: Floats, key: Floats) -> Floats:
    """What queries are multiplied by (heads, 1, 1): the norm gives the keys of all groups the size of the first."""
    sizes = np.sqrt((key**2).mean(axis=1))
    return np.repeat(sizes / sizes[0], len(query) // len(key))[:, None, None]


def norm_signs(dimensions: int, name: str) -> Floats:
    """Of a norm's weights. Those of keys differ in the two dimensions that turn together, those of queries do not: so
    norms that are exchanged turn sines around."""
    places = np.arange(dimensions)
    if name == "q":
        return np.where(places % 2 == 0, 1.0, -1.0)
    return np.where((places // 2 % 2 == 0) == (places < dimensions // 2), 1.0, -1.0)


def constant_heads(decoder: GatedDecoder, layer: int, name: str) -> Floats:
    """(heads, head_dim): queries or keys of any token but BOS. Those of BOS have the same size."""
    attention, layout = decoder.attention[layer], decoder.layout
    read = attention.norm * layout.signs
    read[layout.first] *= -1
    some = np.concatenate([layout.constant[0], layout.first])
    return np.asarray((getattr(attention, name)[:, some] @ read[some]).reshape(-1, decoder.design.head_dim))


def _fill_up(decoder: GatedDecoder, layer: int, tensors: dict[str, Floats], query: Floats, weights: Floats) -> Floats:
    """The queries with so much at a frequency without key that all of them are as large as the largest.

    Their norm makes all of them equally large: otherwise it would raise the scores of near heads with those of far
    ones, and a score of -15 at the own place would overflow in padded rows of float16.
    """
    d, attention, constant = decoder.design.head_dim, decoder.attention[layer], decoder.layout.constant[0]
    signs, filled = decoder.layout.signs[constant], query.copy()
    for head in range(decoder.heads):
        missing = np.sqrt(max(0.0, (query**2).sum(axis=1).max() - (query[head] ** 2).sum()))
        if not missing:  # the largest itself
            continue
        dead = unused_frequency(head // (decoder.heads // decoder.kv_heads))
        weights[head * d + dead, constant] = missing * signs / np.abs(attention.norm[constant]).sum()
        filled[head, dead] = missing
    tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = weights
    return filled
