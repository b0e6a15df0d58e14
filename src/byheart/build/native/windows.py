"""A native memory of windows for a stock decoder: the id of a window is linear in the bits of its tokens.

Where `native` samples a number for every symbol at every position, this samples one for every bit of a token's code at
every position: a window's id is the sum of the numbers of its bits. Attention heads that look back by fixed distances
can add that up without any mean, so that nothing is divided and nothing has to be rounded back.

    >>> windows = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 1]])
    >>> network = build_windows(windows, np.array([2, 0, 1]), classes=3)
    >>> network.layers[0].width_in, network.readout.classes
    (3, 3)
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from byheart.build.native.hashing import HashChain, Ints
from byheart.build.native.layout import float_type
from byheart.build.native.memory import BucketWords, Refusal, memory_blocks, store
from byheart.build.native.plan import Need, choose
from byheart.build.native.tokens import Mixing, sizing
from byheart.errors import BuildError
from byheart.ir.layers import Affine, Layer, Matrix
from byheart.ir.network import Decode, Network, Read, Readout

# As in native.construction: shapes without an improvement, draws, spare bits. Tuned by hand.
PATIENCE, DRAWS, SPARE = 60, 400, (0, 4, 8)


def build_windows(windows: Ints, labels: Ints, classes: int, *, dtype: str = "float32", seed: int = 0) -> Network:
    """The network that gives every window (distinct rows of bits) its label; one token per window, its bits in a row.

    The first layer is linear and makes the ids, the last one reads the answer; residual blocks lie between.
    """
    kind, rng, bits = float_type(dtype), random.Random(f"windows {seed}"), windows.shape[1]
    reason = "nothing was sampled"
    for spare in SPARE:
        size = sizing(kind, Mixing.POOL, bits, False, len(windows), spare)
        need = Need(kind, len(windows), max(1, (classes - 1).bit_length()), 0, size.chains, size.warmup, size.scale)
        layout = choose(need, "size", PATIENCE, lambda shape: 0)
        size = replace(size, chains=layout.chains)
        numbers = np.random.default_rng(rng.getrandbits(64)).integers(0, 1 << size.table_bits, (bits, layout.chains))
        ids = windows @ numbers
        if len(np.unique(ids, axis=0)) < len(ids):
            reason = "two windows have the same id"
            continue
        for _ in range(DRAWS):
            bound = size.id_bound
            chains = [HashChain(rng.randrange(bound, bound + bound // 4) | 1, size.scale) for _ in range(layout.chains)]
            stored = store(layout, chains, ids, labels)
            if isinstance(stored, BucketWords):
                front = _linear(numbers, layout.width, 1 << size.scale)
                blocks = [block for _, part in memory_blocks(layout, chains, stored) for block in part]
                answer = Affine(Matrix.of([{layout.bucket_channel: 1}], layout.width))
                layers: tuple[Layer, ...] = (front, *blocks, answer)
                return Network(layers, Read.LAST, Readout(Decode.VALUE, classes))
            assert isinstance(stored, Refusal)
            reason = stored.reason
    raise BuildError(f"no draw of numbers and hash chains fits these windows: {reason}; try another seed")


def _linear(numbers: Ints, width: int, unit: int) -> Affine:
    rows = [{bit: int(number) * unit for bit, number in enumerate(column) if number} for column in numbers.T.tolist()]
    return Affine(Matrix.of([*rows, *[{} for _ in range(width - len(rows))]], len(numbers)))
