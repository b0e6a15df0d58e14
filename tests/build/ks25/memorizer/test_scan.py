from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byheart.build.ks25.memorizer.key_groups import Fields, pack
from tests.build.ks25.memorizer.lemmas import measured, scan, within
from tests.naive import run

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
def test_promise(entries: int, key_bits: int, label_bits: int) -> None:
    gadget = scan(Fields(entries, key_bits, label_bits))
    bits = entries * max(key_bits, label_bits)
    assert within(gadget, width=12, depth=3 * bits + 2 * entries + 2, bits=bits + 2)
    width, depth, _ = measured(gadget)
    assert depth == 1 + entries * (3 * max(key_bits, label_bits) + 2) + 1
    if entries > 1 and label_bits > 1:
        assert width == 12
