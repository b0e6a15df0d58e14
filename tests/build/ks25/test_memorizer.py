"""The feed-forward memorizer: every lemma by itself against its statement, then the whole."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byheart.build.ks25.memorizer import Fields, KeyTable, pack
from byheart.errors import BuildError
from byheart.theory.upper import explicit_memory
from tests.build.ks25.lemmas import (
    extract_bits,
    group_lookup,
    interval_indicator,
    match_gate,
    measured,
    memorizer,
    scan,
    within,
)
from tests.naive import run


def psi(z: Fraction, times: int) -> Fraction:
    for _ in range(times):
        z = 2 * z if 2 * z <= 1 else 2 - 2 * z
    return z


def starts(word: int, length: int) -> tuple[Fraction, Fraction]:
    return Fraction(word, 2**length) + Fraction(1, 2 ** (length + 1)), Fraction(word, 2**length) + Fraction(
        1, 2 ** (length + 2)
    )


@pytest.mark.parametrize("length,first,last", [(1, 1, 1), (4, 1, 4), (4, 2, 3), (9, 3, 3), (24, 5, 17), (70, 1, 5)])
def test_bits_and_trajectories(length: int, first: int, last: int) -> None:
    """i = j is among the cases: the paper's i < j would forbid labels of one bit."""
    rng = random.Random(length)
    gadget = extract_bits(length, first, last)
    for word in {0, 2**length - 1, *(rng.randrange(2**length) for _ in range(20))}:
        z1, z2 = starts(word, length)
        found = run(gadget, [psi(z1, first - 1), psi(z2, first - 1)])
        bits = word >> (length - last) & (1 << (last - first + 1)) - 1
        assert found == [psi(z1, last), psi(z2, last), bits]


def test_guarantee_of_bit_extraction_is_met_exactly_in_depth() -> None:
    for length, first, last in ((4, 1, 4), (24, 5, 17), (3, 2, 2)):
        gadget = extract_bits(length, first, last)
        depth = 3 * (last - first + 1)
        assert within(gadget, width=5, depth=depth, bits=length + 2) and measured(gadget)[1] == depth


@pytest.mark.parametrize("count,entries", [(1, 1), (5, 1), (7, 3), (12, 4), (9, 20)])
def test_words_of_the_group_and_nothing_new_elsewhere(count: int, entries: int) -> None:
    rng = random.Random(count)
    points = [Fraction(x, 8) for x in sorted(rng.sample(range(16, 16 * 60, 16), count + 15))]
    points = [x + Fraction(rng.randint(0, 3), 8) * (i % 2) for i, x in enumerate(points)]
    points = [x for i, x in enumerate(points) if i == 0 or x - points[i - 1] >= 2]
    chosen = sorted(rng.sample(points, min(count, len(points))))
    fields = Fields(entries, key_bits=8, label_bits=3)
    groups = pack([int(x) for x in chosen], [rng.randint(1, 7) for _ in chosen], fields)
    gadget = group_lookup(groups)
    known = {(0, 0), *((g.key_word, g.label_word) for g in groups)}
    for x in points:
        same, u, w = run(gadget, [x])
        assert same == x and (u, w) in known
        if x in chosen:
            group = groups[chosen.index(x) // entries]
            assert (u, w) == (group.key_word, group.label_word)
    assert within(gadget, width=5, depth=3 * len(groups) + 2, bits=fields.key_word + 8)
    assert measured(gadget)[1] == 3 * len(groups)


def test_unused_places_hold_key_zero() -> None:
    (group,) = pack([9], [1], Fields(entries=3, key_bits=4, label_bits=1))
    assert group.key_word == 9 << 8 and group.label_word == 1 << 2


@pytest.mark.parametrize("keys,labels", [([3, 3], [1, 1]), ([1], [1]), ([16], [1]), ([4], [0]), ([4], [2])])
def test_what_does_not_fit_is_refused(keys: list[int], labels: list[int]) -> None:
    with pytest.raises(BuildError):
        pack(keys, labels, Fields(entries=2, key_bits=4, label_bits=1))


def test_one_inside_zero_half_a_step_outside() -> None:
    rng = random.Random(0)
    for _ in range(50):
        first = rng.randint(0, 50)
        last = first + rng.randint(1, 50)
        gadget = interval_indicator(first, last)
        for x in (Fraction(rng.randint(-400, 1600), 8) for _ in range(20)):
            (value,) = run(gadget, [x])
            if first <= x <= last:
                assert value == 1
            elif x > last + Fraction(1, 2) or x < first - Fraction(1, 2):
                assert value == 0


def test_guarantee_of_the_indicator() -> None:
    for first, last in ((0, 1), (3, 5), (100, 1023)):
        gadget = interval_indicator(first, last)
        assert measured(gadget) == (2, 2, max(2, last.bit_length()))


def test_gate_lets_the_label_through_only_on_a_match() -> None:
    rng = random.Random(1)
    for _ in range(500):
        bits = rng.randint(1, 6)
        label, key, x = rng.randrange(2**bits), rng.randint(0, 40), Fraction(rng.randint(0, 400), 8)
        gadget = match_gate(bits)
        (value,) = run(gadget, [x, key, label])
        if key <= x <= key + 1:
            assert value == label
        elif x > key + Fraction(3, 2) or x < key - Fraction(1, 2):
            assert value == 0
        assert measured(gadget) == (3, 2, bits + 2)


CASES = [(1, 2, 1), (1, 3, 5), (3, 5, 1), (3, 5, 5), (2, 6, 9), (4, 7, 3)]


@pytest.mark.parametrize("entries,key_bits,label_bits", CASES)
def test_label_of_the_matching_key_or_zero(entries: int, key_bits: int, label_bits: int) -> None:
    """Includes a half-filled word, whose empty places (key 0) break the lemma's hypothesis but match no x >= 2."""
    rng = random.Random(entries)
    fields = Fields(entries, key_bits, label_bits)
    gadget = scan(fields)
    for filled in {entries, 1}:
        keys = sorted(2 * k for k in rng.sample(range(1, 2 ** (key_bits - 1)), filled))
        labels = [rng.randrange(1, 2**label_bits) for _ in keys]
        (group,) = pack(keys, labels, fields)
        for x in (Fraction(k, 2) for k in range(4, 2**key_bits * 2 + 8, 1 if key_bits < 4 else 7)):
            (value,) = run(gadget, [x, group.key_word, group.label_word])
            if int(x) in keys:
                assert value == labels[keys.index(int(x))]
            elif all(abs(x - Fraction(1, 2) - key) > 1 for key in keys):
                assert value == 0
        assert run(gadget, [3, 0, 0]) == [0]


@pytest.mark.parametrize("entries,key_bits,label_bits", CASES)
def test_guarantee_of_the_scan(entries: int, key_bits: int, label_bits: int) -> None:
    gadget = scan(Fields(entries, key_bits, label_bits))
    bits = entries * max(key_bits, label_bits)
    assert within(gadget, width=12, depth=3 * bits + 2 * entries + 2, bits=bits + 2)
    width, depth, _ = measured(gadget)
    assert depth == 1 + entries * (3 * max(key_bits, label_bits) + 2) + 1
    if entries > 1 and label_bits > 1:
        assert width == 12


def line(rng: random.Random, known: int, others: int) -> tuple[dict[Fraction, int], list[Fraction]]:
    """Points at least 2 apart from 2 on; some of them labelled."""
    points, x = [], Fraction(2)
    for _ in range(known + others):
        points.append(x + Fraction(rng.randint(0, 15), 16))
        x = points[-1] + 2 + Fraction(rng.randint(0, 40), 16)
    labelled = sorted(rng.sample(points, known))
    return {p: rng.randint(1, 5) for p in labelled}, points


def table(labels: dict[Fraction, int], entries: int) -> KeyTable:
    keys = tuple(int(p) for p in labels)
    return KeyTable(keys, tuple(labels.values()), Fields(entries, max(keys, default=3).bit_length(), 3))


@pytest.mark.parametrize("known,others,entries", [(0, 3, 1), (1, 0, 1), (1, 4, 1), (5, 5, 2), (7, 0, 3), (12, 20, 4)])
def test_labels_on_known_points_and_zero_on_the_others(known: int, others: int, entries: int) -> None:
    labels, points = line(random.Random(known), known, others)
    known_points = table(labels, entries)
    gadget, fields = memorizer(known_points), known_points.fields
    assert [run(gadget, [x]) for x in points] == [[labels.get(x, 0)] for x in points]
    guarantee = explicit_memory(known_points.group_count, entries, fields.key_bits, fields.label_bits, projection=0)
    assert within(gadget, guarantee.width, guarantee.depth, guarantee.max_bits)
    assert known < 2 or measured(gadget)[0] == 12
