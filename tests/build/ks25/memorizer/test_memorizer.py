from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.memorizer import Table
from byheart.theory.upper import explicit_memory
from tests.build.ks25.memorizer.lemmas import measured, memorizer, within
from tests.naive import run


def line(rng: random.Random, known: int, others: int) -> tuple[dict[Fraction, int], list[Fraction]]:
    """Points at least 2 apart from 2 on; some of them labelled."""
    points, x = [], Fraction(2)
    for _ in range(known + others):
        points.append(x + Fraction(rng.randint(0, 15), 16))
        x = points[-1] + 2 + Fraction(rng.randint(0, 40), 16)
    labelled = sorted(rng.sample(points, known))
    return {p: rng.randint(1, 5) for p in labelled}, points


def table(labels: dict[Fraction, int], entries: int) -> Table:
    keys = tuple(int(p) for p in labels)
    return Table(keys, tuple(labels.values()), Fields(entries, max(keys, default=3).bit_length(), 3))


@pytest.mark.parametrize("known,others,entries", [(0, 3, 1), (1, 0, 1), (1, 4, 1), (5, 5, 2), (7, 0, 3), (12, 20, 4)])
def test_labels_on_known_points_and_zero_on_the_others(known: int, others: int, entries: int) -> None:
    labels, points = line(random.Random(known), known, others)
    known_points = table(labels, entries)
    gadget, fields = memorizer(known_points), known_points.fields
    assert [run(gadget, [x]) for x in points] == [[labels.get(x, 0)] for x in points]
    promise = explicit_memory(known_points.group_count, entries, fields.key_bits, fields.label_bits, projection=0)
    assert within(gadget, promise.width, promise.depth, promise.max_bits)
    assert known < 2 or measured(gadget)[0] == 12
