"""The label memory: chains, solver, selector, scan and readout, evaluated in plain float arrays."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from byheart.build.native import plan, solve
from byheart.build.native.hashing import HashChain, bucket_numbers, chain_scale, hash_rows
from byheart.build.native.layout import FLOAT32, FLOAT64, Layout, Purpose, guard_bits
from byheart.build.native.memory import BucketWords, Refusal, memory_blocks, store
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
        if isinstance(stored, BucketWords):
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
    assert isinstance(refused, Refusal) and "its capacity is 3" in refused.reason
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


def naive_bits(layout: Layout, chains, key) -> list[tuple]:
    """(purpose, word, index, bit) of every step for one key, as in the docstring of `hashing`."""
    state = [int(x) << chain.scale for x, chain in zip(key, chains, strict=True)]
    found = []
    for step in (step for steps in layout.rounds for step in steps):
        fold, z = chains[step.chain].fold(step.number), state[step.chain]
        above = z > fold.threshold
        state[step.chain] = (2 * fold.threshold - z if above else z) << fold.rescale
        found.append((step.purpose, step.word, step.index, int(above)))
    return found


@pytest.mark.parametrize(("chains", "fingerprint", "keys"), [(1, 0, 300), (3, 5, 131)])
def test_hashes_of_many_keys_are_those_of_each(chains, fingerprint, keys):
    layout = Layout(FLOAT64, 2, fingerprint, 5, 4, 20, chains, 6, 8)
    drawn = [HashChain((1 << 40) + 2 * k + 1, 8) for k in range(chains)]
    ids = np.random.default_rng(1).integers(0, 1 << 40, (keys, chains))
    buckets, states = bucket_numbers(layout, drawn, ids)
    hashes = hash_rows(layout, drawn, states)
    for key in range(keys):
        bits = naive_bits(layout, drawn, ids[key])
        assert buckets[key] == sum(bit << index for kind, _, index, bit in bits if kind is Purpose.BUCKET)
        levels = [(word, index, bit) for kind, word, index, bit in bits if kind is Purpose.LEVEL]
        row = sum(bit << ((layout.levels - 1) * word + index - 1) for word, index, bit in levels if index)
        assert sum(int(word) << 64 * k for k, word in enumerate(hashes.rows[key])) == row
        assert hashes.ones[key] == sum(bit for _, _, bit in levels)
        assert hashes.fresh[key] == sum(bit << index for kind, _, index, bit in bits if kind is Purpose.FRESH)


def test_parts_on_any_executor_make_the_same_words_and_the_fullest_buckets_decide_first(monkeypatch):
    rng = np.random.default_rng(5)
    ids, labels = np.unique(rng.integers(0, 1 << 38, (3000, 1)), axis=0), rng.integers(0, 3, 3000)
    layout = choose(Need(FLOAT64, 3000, 2, 0, 1, 6, 10), "size", 60, lambda _: 0)
    solved: list[int] = []
    each = solve.solve_part
    monkeypatch.setattr(solve, "solve_part", lambda part: solved.append(len(part.labels)) or each(part))
    whole = {seed: store(layout, [HashChain(rng_odd(seed), 10)], ids, labels) for seed in range(120)}
    monkeypatch.setattr(solve, "FIRST_KEYS", 100)
    monkeypatch.setattr(solve, "PART_KEYS", 250)
    refused = stored = 0
    with ThreadPoolExecutor(2) as pool:
        for seed, expected in whole.items():
            solved.clear()
            found = store(layout, [HashChain(rng_odd(seed), 10)], ids, labels, pool)
            assert type(found) is type(expected)
            if isinstance(found, BucketWords):
                stored += 1
                assert np.array_equal(found.words, expected.words) and sum(solved) == 3000 and len(solved) > 8
            elif "no solution" in found.reason:
                refused += sum(solved) <= 100 + solve.AHEAD * 2 * 250 + 250
    assert stored and refused


def rng_odd(seed: int) -> int:
    return random.Random(seed).randrange(1 << 38, 5 << 36) | 1


def test_the_planned_capacity_is_the_first_that_will_do():
    for keys, bits, targets in ((10_000, 8, 1), (3_000, 3, 2), (500, 7, 4), (20_000, 10, 1), (70, 6, 1)):
        buckets = 1 << bits
        fits = (plan._few_buckets if buckets <= plan.FEW_BUCKETS else plan._many_buckets)(keys, buckets)
        chances = ((cap, fits(cap, 1 - 0.5**targets)) for cap in range(max(1, -(-keys // buckets)), keys + 3))
        first = next(cap for cap, (held, solvable) in chances if held * 60 >= 1 and solvable >= 0.35)
        assert smallest_capacity(keys, bits, targets, 60) == first
