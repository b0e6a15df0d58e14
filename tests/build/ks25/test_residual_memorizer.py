""""""

from __future__ import annotations

import random

import pytest

from byheart.build.ks25.memorizer import Fields, KeyTable, pack
from byheart.build.ks25.residual_memorizer import STREAM
from byheart.errors import BuildError
from byheart.theory.upper import explicit_memory
from tests.build.ks25.lemmas import measured, residual_lookup, residual_memorizer, residual_scan, within
from tests.build.ks25.test_memorizer import line
from tests.naive import run


@pytest.mark.parametrize("hidden", [14, 12])
@pytest.mark.parametrize(
    "entries,key_bits,label_bits", [(1, 3, 1), (3, 6, 1), (3, 6, 6), (2, 6, 9), (4, 7, 3), (2, 7, 6)]
)
def test_labels_and_guarantee(entries: int, key_bits: int, label_bits: int, hidden: int) -> None:
    rng = random.Random(entries)
    count = min(2 ** (key_bits - 1) - 1, 11)
    keys = tuple(sorted(2 * k for k in rng.sample(range(1, 2 ** (key_bits - 1)), count)))
    labels = tuple(rng.randrange(1, 2**label_bits) for _ in keys)
    table = KeyTable(keys, labels, Fields(entries, key_bits, label_bits))
    gadget = residual_memorizer(table, hidden=hidden)
    for x in range(2, 2**key_bits + 4, 2):
        found = dict(zip(STREAM, run(gadget, [x] + [0] * 9), strict=True))
        assert found["y"] == dict(zip(keys, labels, strict=True)).get(x, 0)
        assert found["x"] == x and found["key"] == found["label"] == found["miss"] == found["pending"] == 0
    groups = -(-count // entries)
    guarantee = explicit_memory(groups, entries, key_bits, label_bits, form="residual", width=hidden)
    assert within(gadget, hidden, guarantee.depth, guarantee.max_bits)
    assert (
        measured(gadget)[1]
        == guarantee.depth
        == 1 + groups + entries * (max(key_bits, label_bits) + (hidden == 12)) + 3
    )


@pytest.mark.parametrize("known,others,piece", [(0, 2, 1), (1, 0, 1), (9, 5, 4), (9, 5, 9), (5, 3, 1)])
def test_pieces(known: int, others: int, piece: int) -> None:
    labels, points = line(random.Random(known), known, others)
    keys = tuple(int(p) for p in labels)
    table = KeyTable(keys, tuple(labels.values()), Fields(2, max(keys, default=4).bit_length() + 1, 3))
    gadget = residual_memorizer(table, piece)
    for x in points:
        assert run(gadget, [x] + [0] * 9)[STREAM.index("y")] == labels.get(x, 0)
    assert measured(gadget)[0] <= 14


def test_lookup_and_scan_are_the_two_halves() -> None:
    fields = Fields(entries=2, key_bits=5, label_bits=3)
    groups = pack([4, 9, 20], [7, 1, 5], fields)
    lookup, scan = residual_lookup(groups, fields), residual_scan(fields)
    for x, label in ((4, 7), (9, 1), (20, 5), (2, 0), (15, 0), (31, 0)):
        stream = run(lookup, [x] + [0] * 9)
        assert run(scan, stream)[STREAM.index("y")] == label
    assert within(lookup, width=10, depth=1 + len(groups), bits=max(2 * 5, 5) + 2)
    assert within(scan, width=14, depth=2 * 5 + 3, bits=2 * 5 + 2)


def test_too_short_fields_are_refused() -> None:
    with pytest.raises(BuildError, match="3 bits"):
        residual_scan(Fields(entries=1, key_bits=2, label_bits=1))
