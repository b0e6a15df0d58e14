"""The embedding: every entry is +kappa or -kappa, and the signs are the words of a linear code.

Words form a group under products: the product of two words is a word. So the bits in which two keys differ are again
the bits of a word, and 65,535 differences represent all 2^32 pairs of keys.

Learned positions have their own channels, with entries of the same size; there the embedding is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.checkpoints.proof.config import Shape, Undecided
from byheart.checkpoints.proof.recall.layout import RecallLayout
from byheart.checkpoints.proof.storage import Array, Storage


@dataclass(frozen=True, eq=False)
class StoredWords:
    """Signs of the embedding (vocabulary, hidden), its size, and the differences of keys."""

    signs: Array
    kappa: float
    differences: Array  # (words, bits) of bool
    places: Array  # (positions, hidden): signs of the channels of learned positions, 0 elsewhere

    def of(self, layout: RecallLayout, role: str) -> Array:
        """Return the words of a role, (vocabulary, bits)."""
        return self.signs[:, layout[role]]


def read_words(
    embedding: Array, positions: Array | None, shape: Shape, layout: RecallLayout, store: Storage
) -> StoredWords:
    """Check the embedding, and the table of positions where there is one, and return its words.

    Raises:
        Undecided: an entry is not +-kappa, a role has the wrong signs, or the code is not linear.
    """
    root = math.sqrt(shape.hidden) if shape.root_scaled else shape.embedding_scale
    scaled = embedding * root
    kappa = float(np.abs(scaled).max())
    table = np.zeros((1, shape.hidden)) if positions is None else positions
    placed = np.asarray(table.any(0))
    sized = (np.abs(scaled) == kappa * ~placed).all() and (np.abs(table) == kappa * placed).all()
    if not kappa > 0 or not sized or float(store.nearest(np.array([kappa]))[0]) != kappa:
        raise Undecided("the embedding has entries of several sizes, or a size that the type does not hold")
    if root != math.floor(root) or float(store.nearest(np.array([root]))[0]) != root:
        raise Undecided(f"embeddings are multiplied by {root:g}, which is not a whole number of {store.name}")
    signs = np.sign(scaled)
    _check_roles(signs, layout)
    paired = np.flatnonzero(layout.twins >= 0)
    if any(placed[channels].any() for channels in layout.roles.values()):
        raise Undecided("a channel with a role depends on the position")
    if (signs[:, paired] != -signs[:, layout.twins[paired]]).any() or placed[paired].any():
        raise Undecided("a channel of the embedding and its twin do not have opposite signs")
    newer = signs[:, layout["newer"]]
    words = _closed(newer, "newer")
    if layout.key_length == 2:
        older = signs[:, layout["older"]]
        _closed(older, "older")
        both = (newer[:, None] * older[None]).reshape(-1, layout.bits)
        if len(np.unique(_packed(both))) != len(both):
            raise Undecided("two keys have one word")
        words = both
    elif len(np.unique(_packed(newer))) != len(newer):
        raise Undecided("two keys have one word")
    differences = words[~(words > 0).all(1)] < 0
    return StoredWords(signs, kappa, differences, np.sign(table))


def _check_roles(signs: Array, layout: RecallLayout) -> None:
    words = {"newer", "older"} if layout.key_length == 2 else {"newer", "query"}
    for role, channels in layout.roles.items():
        if role in words:
            continue
        found = signs[:, channels]
        if role == "bos":
            wanted = np.where(np.arange(len(signs)) == layout.bos, 1.0, -1.0)[:, None]
        else:
            wanted = np.full((1, 1), -1.0 if role in ("found", "stale") else 1.0)
        if not (found == wanted).all():
            raise Undecided(f"the embedding's channels of {role} do not have the signs of that role")


def _packed(words: Array) -> Array:
    """Words as numbers."""
    return (words < 0) @ (1 << np.arange(words.shape[1], dtype=np.int64))


def _closed(words: Array, role: str) -> Array:
    numbers = np.unique(_packed(words))
    products = np.unique(numbers[:, None] ^ numbers[None])
    if not np.array_equal(products, numbers) or len(numbers) != len(words):
        raise Undecided(f"the words of {role} are not closed under products, or two tokens share one")
    return words
