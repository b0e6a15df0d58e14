from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from byheart.build.ks25.memorizer.key_groups import Fields
from byheart.build.ks25.memorizer.memorizer import Table
from byheart.build.ks25.sequence_ids.multiset_separation import separate_multisets
from byheart.build.shared.projection import Constants
from tests.build.ks25.memorizer.lemmas import measured, memorizer, projection
from tests.build.ks25.sequence_ids.test_distinguishing_tokens import distinct, index_of
from tests.build.shared.test_projection import cloud
from tests.naive import run


@pytest.mark.parametrize("constants", Constants)
def test_the_network_gives_the_sums(constants: Constants) -> None:
    rng = random.Random(1)
    points = cloud(20, 2)
    rows = distinct([[rng.randrange(20) for _ in range(rng.randint(1, 4))] for _ in range(12)])
    code = separate_multisets(points, Fraction(1, 256), index_of(rows), constants)
    assert len(set(code.sums.tolist())) == len(rows)
    assert sum(label > 0 for label in code.labels) <= len(rows) - 1
    table = Table.of(
        code.line.floors, code.labels, Fields(3, code.line.top.bit_length(), max(code.labels).bit_length())
    )
    stage1, stage23 = projection(code.line), memorizer(table)
    phi = [run(stage23, run(stage1, points.row(i))) for i in range(points.count)]
    assert phi == [[label] for label in code.labels]
    assert [sum(phi[k][0] for k in row) for row in rows] == code.sums.tolist()
    assert measured(stage23)[0] <= 12


def test_repeated_tokens_count_as_often_as_they_occur() -> None:
    """Without the multiplicity that eq. (47) lacks, {p} and {p, p} would have the same sum."""
    code = separate_multisets(cloud(2, 1), Fraction(1, 256), np.array([[0, -1], [0, 0]]), Constants.MEASURED)
    assert code.sums[1] == 2 * code.sums[0] != 0
