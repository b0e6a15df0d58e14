"""Whole rows as points: distinct rows, their classes, and the vectors that symbols get."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.build.shared.projection import Constants
from byheart.build.table1.flattened import embedding_note, flat_cloud, flat_rows, generic_embedding, row_line
from byheart.data.dataset.dataset import load
from byheart.ir.evaluate import tokenwise

DATA = load(["ab", "ba", "bb", "ab"], [0, 1, 1, 0])


def test_rows_are_the_tokens_one_after_another():
    rows = flat_rows(DATA)
    assert (rows.count, rows.dimension, rows.layer.width_out) == (3, 4, 4)
    by_row = {tuple(map(int, point)): label for point, label in zip(rows.points.numerators, rows.labels, strict=True)}
    assert by_row == {(1, 0, 2, 1): 0, (2, 0, 1, 1): 1, (2, 0, 2, 1): 1}


def test_the_cloud_bounds_norms_and_distances_of_the_rows():
    rows, cloud = flat_rows(DATA), flat_cloud(DATA, flat_rows(DATA))
    points = rows.points.numerators.astype(int)
    assert max((points**2).sum(axis=1)) <= cloud.r_squared
    gaps = [((a - b) ** 2).sum() for k, a in enumerate(points) for b in points[:k]]
    assert min(gaps) >= cloud.delta_squared


def test_coordinates_that_are_the_same_in_all_rows_have_no_weight():
    line = row_line(DATA, flat_rows(DATA), Constants.MEASURED, seed=0)
    assert line.weight[1] == line.weight[3] == 0 and line.weight[0] and line.weight[2]


@pytest.mark.parametrize("placed", [False, True])
def test_every_symbol_has_a_vector_and_with_places_one_for_each(placed):
    table, points = generic_embedding(DATA, 3, placed=placed, seed=0)
    assert (tokenwise([table], DATA.inputs.points).numerators == points.numerators).all()
    distinct = len({tuple(point) for point in points.numerators.tolist()})
    assert distinct == (4 if placed else 2) and np.all(points.numerators.astype(int) % 2)
    assert f"{table.parameters} further parameters" in embedding_note(table)
