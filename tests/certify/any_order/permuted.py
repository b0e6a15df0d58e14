"""The same function in another order of summation."""

from __future__ import annotations

import random
from dataclasses import replace

from byheart.ir.layers import Matrix, Residual
from byheart.ir.network import Network


def permuted(network: Network, seed: int) -> Network:
    """Hidden units of every block in a random order."""
    rng = random.Random(seed)
    return replace(network, layers=tuple(_block(x, rng) if isinstance(x, Residual) else x for x in network.layers))


def _block(block: Residual, rng: random.Random) -> Residual:
    order = rng.sample(range(block.hidden), block.hidden)
    place = {old: new for new, old in enumerate(order)}
    return Residual(
        Matrix(tuple(block.weight1.rows[k] for k in order), block.weight1.columns),
        tuple(block.bias1[k] for k in order),
        Matrix.of([{place[k]: w for k, w in row} for row in block.weight2.rows], block.hidden),
        block.bias2,
    )
