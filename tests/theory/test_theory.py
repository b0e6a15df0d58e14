"""The guarantees of `theory` hold for the networks that the lemmas build; only this test imports both."""

from __future__ import annotations

import random

import pytest

from byheart.build.ks25.memorizer import Fields, KeyTable
from byheart.theory.upper import dense_blocks, dense_layers, explicit_memory, groups
from tests.build.ks25.lemmas import memorizer, residual_memorizer, within


def table(N: int, C: int, K: int, rho: int, seed: int) -> KeyTable:
    rng = random.Random(seed)
    keys = tuple(2 * k for k in sorted(rng.sample(range(1, 2 ** (rho - 1) - 1), N)))
    labels = tuple(rng.randint(1, C) for _ in keys)
    return KeyTable(keys, labels, Fields(K, rho, C.bit_length()))


@pytest.mark.parametrize(("N", "C", "rho"), [(1, 1, 6), (2, 2, 6), (9, 4, 12), (40, 10, 9), (60, 5000, 14)])
def test_memories_keep_the_guarantee(N: int, C: int, rho: int) -> None:
    m, K = groups(N)
    built, c = table(N, C, K, rho, seed=N), C.bit_length()
    guaranteed = explicit_memory(m, K, rho, c, projection=0)
    assert within(memorizer(built), guaranteed.width, guaranteed.depth, guaranteed.max_bits)
    assert guaranteed.parameters == dense_layers(guaranteed.depth, 12)
    for width in (12, 14):
        guaranteed = explicit_memory(m, K, rho, c, form="residual", width=width)
        assert within(residual_memorizer(built, hidden=width), guaranteed.width, guaranteed.depth, guaranteed.max_bits)
        assert guaranteed.parameters == dense_blocks(guaranteed.depth, hidden=width)


@pytest.mark.parametrize("B", [1, 2, 4])
def test_limited_memories_keep_the_guarantee(B: int) -> None:
    N, C, rho = 33, 6, 10
    m, K = groups(B * B)
    built, chunks = table(N, C, K, rho, seed=B), -(-N // (B * B))
    guaranteed = explicit_memory(m, K, rho, 3, width=13, projection=0).times(chunks)
    assert within(memorizer(built, B * B), guaranteed.width, guaranteed.depth + 1, guaranteed.max_bits)
    guaranteed = explicit_memory(m, K, rho, 3, form="residual", width=14).times(chunks)
    assert within(residual_memorizer(built, B * B), guaranteed.width, guaranteed.depth, guaranteed.max_bits)
