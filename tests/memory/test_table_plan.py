"""How cells become codes is decided by the size of the file."""

from __future__ import annotations

import random

import pytest

from byheart.data.read.cells import read_cells
from byheart.memory.deploy import deploy
from byheart.memory.table_plan import plan_fronts
from tests.varied_tables import KINDS


def test_texts_are_cut_by_the_size_of_the_result():
    rng = random.Random(0)
    parts, few = ("ABCDEF", "123456789", " ", "123456789", "XYZ"), ["north", "south"]
    codes = sorted({"".join(map(rng.choice, parts)) for _ in range(900)})
    size = len(codes)
    sides, labels = [few[k % 2] for k in range(size)], [k % 5 for k in range(size)]
    table = read_cells({"code": codes, "side": sides, "y": labels})
    plans, alternatives = plan_fronts(table, "auto", 16, "float64")
    assert [column.cutting.name for column in plans[0].front.columns] == ["characters", "whole cells"]
    assert alternatives["characters"] < alternatives["cells"]
    wide, _ = plan_fronts(table, "cells", 16, "float64")
    assert {column.cutting.name for plan in wide for column in plan.front.columns} == {"whole cells"}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in ("postal_codes", "ouis", "entities")), "two_keys", "keywords"]
)
def test_estimates_are_within_five_percent_of_the_written_file(name):
    table = KINDS[name]()
    columns = dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True))
    for tokens in ("auto", "cells"):
        made = deploy(columns, form="network", tokens=tokens, progress=False)
        plans, _ = plan_fronts(read_cells(columns), tokens, None, "float64")
        estimate = next(plan.bytes for plan in plans if plan.front == made.front)
        assert abs(estimate / made.sizes["file"] - 1) < 0.05


def test_whole_cells_are_chosen_where_the_whole_file_is_smaller():
    """Many columns of few cells: the nodes around characters weigh more than the names."""
    table = KINDS["countries"]()
    columns = dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True))
    made = {tokens: deploy(columns, form="network", tokens=tokens, progress=False) for tokens in ("auto", "characters")}
    assert made["auto"].sizes["file"] <= made["characters"].sizes["file"]
