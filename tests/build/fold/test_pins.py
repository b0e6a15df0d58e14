"""Lines that meet two changes of the label each: ids at any distances, in integers at the end."""

from __future__ import annotations

import random
from itertools import pairwise
from math import factorial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart.build.fold import build_label_memory
from byheart.build.fold.lens import FoldChain, falling
from byheart.build.fold.pins import TOP, PinBeam, PinnedLines, pin
from byheart.build.fold.search import crosses

NARROW = PinBeam(3, 8, 0)


def spans(count: int, bits: int) -> list[int]:
    """Ids whose gaps have all lengths up to so many bits."""
    rng, ids = random.Random(bits), [0]
    while len(ids) < count:
        ids.append(ids[-1] + 1 + rng.getrandbits(rng.randrange(1, bits)))
    return ids


FAMILIES = {
    "pairs at powers of sixteen": lambda n: [16 ** (k // 2) + k % 2 for k in range(n)],
    "powers of two": lambda n: [1 << k for k in range(n)],
    "powers of ten": lambda n: [10**k for k in range(n)],
    "gaps of all lengths": lambda n: spans(n, 100),
    "sets within sets": lambda n: [sum(((k >> b) & 1) << (40 * b) for b in range(8)) for k in range(n)],
    "factorials": lambda n: [factorial(k + 1) for k in range(n)],
}


@pytest.mark.parametrize("count", [30, 60])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_at_all_distances_cost_at_most_half_as_much_again(family: str, count: int) -> None:
    """Folds alone took up to 1.9 times the random size for 60 of these, and 4.35 times for 400."""
    ids, rng = FAMILIES[family](count), random.Random(count)
    labels = [rng.randrange(2) for _ in ids]
    plain = build_label_memory(rng.sample(range(1 << 24), count), labels, 2)
    memory = build_label_memory(ids, labels, 2)
    assert [memory.label(x) for x in ids] == labels
    assert memory.parameters <= 1.5 * plain.parameters, (memory.parameters, plain.parameters, memory.note)


def test_a_hundred_random_ids_are_smaller_than_any_traps() -> None:
    rng = random.Random(5)
    ids, labels = sorted(rng.sample(range(1 << 24), 100)), np.array([rng.randrange(2) for _ in range(100)])
    found = pin(ids, labels, 300, PinBeam(8, 24, 1))
    assert found is not None and found.parameters <= 62  # traps take 64
    memory = build_label_memory(ids, labels.tolist(), 2)
    assert memory.parameters <= found.parameters


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 7), st.integers(0, 1)), min_size=2, max_size=40),
    st.integers(1, 5),
)
@example([(0, 0, 0), (1, 0, 1), (2000, 0, 0), (2000, 1, 1)], 3)
@example([(0, 0, 1), (1, 0, 1)], 1)
def test_every_line_is_right_in_integers(points: list[tuple[int, int, int]], folds: int) -> None:
    labelled = {(1 << place) + offset: label for place, offset, label in points}
    ids = sorted(labelled)
    trapped = np.array([labelled[x] == 1 for x in ids])
    chain = FoldChain(tuple(falling(folds, 0.5, TOP)), 1, True)
    found = PinnedLines(ids, trapped, chain, NARROW).run(len(ids)) if len(ids) > 1 else None
    if found is None:
        return
    assert all(crosses(a, b) for a, b in pairwise(found.lines))
    assert [x for line in found.lines for x in ids if line.first <= x <= line.last] == ids
    answers = []
    for x in ids:
        h = x
        for block in found.blocks:
            h = block(h)
        answers.append(h < 0)
    assert answers == trapped.tolist()


def test_ids_beyond_floats_and_the_label_itself() -> None:
    rng = random.Random(2)
    ids = [3 ** (60 * k) + (k % 3) for k in range(40)]
    labels = [rng.randrange(2) for _ in ids]
    for head in ("value", "logits"):
        memory = build_label_memory(ids, labels, 2, head=head, effort="quick")
        assert [memory.label(x) for x in ids] == labels
    assert build_label_memory(ids, labels, 2, effort="quick") == build_label_memory(ids, labels, 2, effort="quick")
