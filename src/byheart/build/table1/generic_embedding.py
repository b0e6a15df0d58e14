"""A generic embedding for symbols: where a theorem wants vectors, every symbol gets a random one."""

from __future__ import annotations

import random

from byheart.data.dataset.dataset import Dataset
from byheart.exact.number import Values
from byheart.ir.layers import Embedding, Matrix

BITS = 12  # at least; more where there are many symbols and few dimensions


def generic_embedding(dataset: Dataset, dimension: int, *, placed: bool, seed: int) -> tuple[Embedding, Values]:
    """The table, and the vectors that it gives the data set's points; only for symbols.

    With `placed`, every pair of symbol and position that occurs has a vector of its own (others have zeros); else the
    position, if there is one, is ignored. Entries are odd integers, so that no vector is zero.

    >>> from byheart.data.dataset.dataset import load
    >>> table, points = generic_embedding(load(["ab", "ba"], [0, 1]), 3, placed=False, seed=0)
    >>> table.table.shape, points.numerators.shape
    ((3, 3), (4, 3))
    """
    encoder = dataset.encoder
    codes = len(encoder.symbols or ()) + 1
    places = encoder.length if placed and encoder.positions else 1
    strides = (1, codes if places > 1 else 0) if encoder.positions else (1,)
    ids = [
        sum(stride * int(number) for stride, number in zip(strides, point, strict=True))
        for point in dataset.inputs.points.numerators
    ]
    used = sorted(set(ids) | set(range(codes) if places == 1 else ()))
    half = 1 << max(BITS, len(used).bit_length() + 4) - 2
    rng = random.Random(f"{seed} {dimension}")
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < len(used):
        drawn[tuple(2 * rng.randrange(-half, half) + 1 for _ in range(dimension))] = None
    vectors = dict(zip(used, drawn, strict=True))
    rows = [dict(enumerate(vectors.get(k, ()))) for k in range(codes * places)]
    return Embedding(Matrix.of(rows, dimension), strides), Values.of([vectors[k] for k in ids])


def embedding_note(table: Embedding) -> str:
    """What people should know about it."""
    return f"symbols have a generic embedding of dimension {table.width_out}: {table.parameters} further parameters"
