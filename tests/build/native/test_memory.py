"""The label memory: chains, solver, selector, scan and readout, evaluated in plain float arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest

from byheart.build.native.hashing import HashChain, chain_scale
from byheart.build.native.layout import FLOAT32, FLOAT64, Layout, guard_bits
from byheart.build.native.memory import Refusal, StoredWords, memory_blocks, store
from byheart.build.native.plan import Need, choose, layouts, smallest_capacity
from byheart.build.native.solve import solve_buckets
from byheart.export.recheck import DTYPES, dense, vector


def evaluate(blocks, streams, dtype, order):
    """All blocks on (D, K) streams with the hidden units of each in a random order."""
    h = streams.astype(DTYPES[dtype])
    for block in blocks:
        mix = order.permutation(block.hidden)
        up, bias = dense(block.weight1, dtype)[mix], vector(block.bias1, dtype)[mix]
        down = dense(block.weight2, dtype)[:, mix]
        h = h + (down @ np.maximum(up @ h + bias[:, None], 0) + vector(block.bias2, dtype)[:, None])
    return h


def draw(layout: Layout, ids, labels, bits: int):
    for seed in range(300):
        rng = random.Random(seed)
        chains = [HashChain(rng.randrange(1 << (bits - 1), 1 << bits) | 1, layout.scale) for _ in range(layout.chains)]
        stored = store(layout, chains, ids, labels)
        if isinstance(stored, StoredWords):
            return chains, stored
    raise AssertionError(stored)


CASES = [
    # float type, keys, classes, fingerprint bits, chains, bits of the moduli
    (FLOAT64, 1, 2, 0, 1, 30),
    (FLOAT64, 7, 5, 0, 1, 30),
    (FLOAT64, 900, 2, 0, 1, 40),
    (FLOAT64, 900, 3, 4, 2, 40),
    (FLOAT64, 600, 200, 0, 3, 38),
    (FLOAT32, 900, 2, 0, 2, 18),
    (FLOAT32, 500, 16, 3, 3, 15),
]


@pytest.mark.parametrize(("kind", "keys", "classes", "extra", "chains", "bits"), CASES)
@pytest.mark.parametrize("objective", ["size", "speed"])
def test_every_key_gets_its_label_in_any_order(kind, keys, classes, extra, chains, bits, objective):
    rng = np.random.default_rng(keys)
    ids = np.unique(rng.integers(0, 1 << (bits - 1), (keys, 12)), axis=0)
    labels = rng.integers(0, classes, len(ids))
    need = Need(kind, keys, max(1, (classes - 1).bit_length()), extra, chains, 6, chain_scale(kind.mantissa, bits))
    layout = choose(need, objective, 20, lambda _: 0)
    drawn, stored = draw(layout, ids[:, : layout.chains], labels, bits)
    blocks = [block for _, part in memory_blocks(layout, drawn, stored) for block in part]
    assert [block.hidden for block in blocks] == layout.hidden_sizes
    assert sum(block.parameters for block in blocks) == layout.parameters

    def answers(keys_of):
        streams = np.zeros((layout.width, len(keys_of)))
        streams[: layout.chains] = keys_of[:, : layout.chains].T * float(1 << layout.scale)
        return evaluate(blocks, streams, kind.name, rng)[layout.bucket_channel]

    assert (answers(ids) == labels).all()
    if extra:
        strange = rng.integers(0, 1 << (bits - 1), (4000, 12))
        accepted = np.mean(answers(strange) < classes)
        expected = classes / (1 << layout.targets)
        assert abs(accepted - expected) < 5 * (expected / 4000) ** 0.5


def test_words_never_outgrow_their_float_type():
    assert FLOAT64.longest_word == 44 and FLOAT32.longest_word == 16
    for kind in (FLOAT64, FLOAT32):
        assert kind.longest_word + guard_bits(kind.longest_word) + 2 <= kind.mantissa


def test_the_planner_never_offers_less_room_than_keys():
    for keys in (1, 2, 7, 40, 300, 5000):
        for bucket_bits in range(8):
            assert smallest_capacity(keys, bucket_bits, 2, 60) << bucket_bits >= keys
    need = Need(FLOAT32, 2000, 3, 0, 2, 6, 5)
    assert all(layout.capacity * layout.buckets >= 2000 for layout in layouts(need, 60, False))
    best = choose(need, "size", 60, lambda _: 0)
    assert best.parameters == min(layout.parameters for layout in layouts(need, 60, False))


def test_overfull_and_contradictory_buckets_are_refused():
    layout = Layout(FLOAT64, 1, 0, 1, 1, 4, 1, 2, 10)
    ids = np.arange(100, dtype=np.int64)[:, None]
    refused = store(layout, [HashChain(12345, 10)], ids, ids[:, 0] % 2)
    assert isinstance(refused, Refusal) and "holds 3" in refused.reason
    rows = np.array([[5], [5]], dtype=np.uint64)
    assert solve_buckets(rows.copy(), np.array([0, 1], dtype=np.uint64), np.array([0, 2]), 1).singular == 0
    assert solve_buckets(rows, np.array([1, 1], dtype=np.uint64), np.array([0, 2]), 1).singular == -1


def test_the_solver_solves_what_it_says():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 1 << 63, (60, 3)).astype(np.uint64)
    wanted = rng.integers(0, 1 << 5, 60).astype(np.uint64)
    solved = solve_buckets(rows.copy(), wanted.copy(), np.array([0, 30, 60]), 5)
    assert solved.singular == -1
    for key in range(60):
        for t in range(5):
            both = rows[key] & solved.bits[key // 30, t]
            assert sum(int(word).bit_count() for word in both) % 2 == int(wanted[key]) >> t & 1
