"""How cells become codes is decided by the size of the file."""

from __future__ import annotations

import random

from byheart.data.read.cells import read_cells
from byheart.memory.table_plan import plan_fronts


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
