from __future__ import annotations

import random

import pytest

from byheart.build.ks25.memorizer.limited_memorizer import limited_memorizer
from byheart.build.shared.promise import measured
from byheart.errors import BuildError
from tests.build.ks25.memorizer.test_memorizer import line, table
from tests.naive import run


@pytest.mark.parametrize("known,others,piece", [(0, 2, 1), (1, 0, 1), (9, 5, 4), (9, 5, 9), (5, 3, 1)])
def test_pieces_know_the_same(known: int, others: int, piece: int) -> None:
    labels, points = line(random.Random(known), known, others)
    gadget = limited_memorizer(table(labels, 2), piece)
    assert [run(gadget.layers, [x]) for x in points] == [[labels.get(x, 0)] for x in points]
    assert not gadget.promise.broken_by(measured(gadget.layers))


def test_smaller_pieces_have_shorter_weights() -> None:
    labels, _ = line(random.Random(3), 16, 0)
    sizes = [measured(limited_memorizer(table(labels, entries), entries**2).layers) for entries in (1, 2, 4)]
    assert sizes[0].bits < sizes[1].bits < sizes[2].bits


def test_empty_pieces_are_refused() -> None:
    labels, _ = line(random.Random(3), 3, 0)
    with pytest.raises(BuildError, match="at least one"):
        limited_memorizer(table(labels, 1), 0)
