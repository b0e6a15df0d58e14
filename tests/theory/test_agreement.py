"""The promises of `bounds` hold for what the gadgets really build: bounds knows no gadget, only the test knows both."""

from __future__ import annotations

import random

import pytest

from byheart.theory.upper import dense_blocks, dense_layers, explicit_memory, groups

memorizer = pytest.importorskip("byheart.build.ks25.memorizer.memorizer")
limited = pytest.importorskip("byheart.build.ks25.memorizer.limited_memorizer")
residual = pytest.importorskip("byheart.build.ks25.memorizer.residual_memorizer")
key_groups = pytest.importorskip("byheart.build.ks25.memorizer.key_groups")
promises = pytest.importorskip("byheart.build.shared.promise")


def table(N: int, C: int, K: int, rho: int, seed: int):
    rng = random.Random(seed)
    keys = tuple(2 * k for k in sorted(rng.sample(range(1, 2 ** (rho - 1) - 1), N)))
    labels = tuple(rng.randint(1, C) for _ in keys)
    return memorizer.Table(keys, labels, key_groups.Fields(K, rho, C.bit_length()))


@pytest.mark.parametrize(("N", "C", "rho"), [(1, 1, 6), (2, 2, 6), (9, 4, 12), (40, 10, 9), (60, 5000, 14)])
def test_memories_keep_the_promise(N: int, C: int, rho: int) -> None:
    m, K = groups(N)
    built = table(N, C, K, rho, seed=N)
    c = C.bit_length()
    plain = promises.measured(memorizer.memorizer(built).layers)
    promised = explicit_memory(m, K, rho, c, projection=0)
    assert plain.width <= promised.width and plain.depth <= promised.depth and plain.bits <= promised.max_bits
    assert promised.parameters == dense_layers(promised.depth, 12)
    for width in (12, 14):
        skip = promises.measured(residual.residual_memorizer(built, hidden=width).layers)
        promised = explicit_memory(m, K, rho, c, form="residual", width=width)
        assert skip.width <= promised.width and skip.depth <= promised.depth and skip.bits <= promised.max_bits
        assert promised.parameters == dense_blocks(promised.depth, hidden=width)


@pytest.mark.parametrize("B", [1, 2, 4])
def test_limited_memories_keep_the_promise(B: int) -> None:
    N, C, rho = 33, 6, 10
    m, K = groups(B * B)
    built = table(N, C, K, rho, seed=B)
    chunks = -(-N // (B * B))
    plain = promises.measured(limited.limited_memorizer(built, B * B).layers)
    promised = explicit_memory(m, K, rho, 3, width=13, projection=0).times(chunks)
    assert plain.width <= promised.width and plain.depth <= promised.depth + 1 and plain.bits <= promised.max_bits
    skip = promises.measured(residual.residual_memorizer(built, B * B).layers)
    promised = explicit_memory(m, K, rho, 3, form="residual", width=14).times(chunks)
    assert skip.width <= promised.width and skip.depth <= promised.depth and skip.bits <= promised.max_bits
