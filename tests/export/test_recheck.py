"""What exported models are queried with: every kind of row that the encoder takes, and no incorrect answer passes."""

from __future__ import annotations

import numpy as np
import pytest

from byheart.data.dataset.dataset import load
from byheart.data.task import Task
from byheart.errors import ExportError
from byheart.export.recheck import ExportQueries, codes_of_inputs, draw_codes, inputs_of_codes, recheck


@pytest.mark.parametrize("task", [Task.NEXT_TOKEN, Task.SET, Task.CAUSAL])
def test_drawn_rows_have_every_length_and_every_symbol(task):
    labels = [["x"] * 3, ["x"]] if task is Task.CAUSAL else [0, 1]
    encoder = load([["a", "b", "c"], ["b"]], labels, task=task, positions=task is not Task.SET).encoder
    codes = draw_codes(encoder, 500, seed=0)
    there = codes > 0
    assert set(there.sum(1).tolist()) == {1, 2, 3}
    assert set(codes[there].tolist()) == {1, 2, 3}
    absent = codes[~there]
    if task is Task.NEXT_TOKEN:  # short rows are padded on the left
        assert set(absent.tolist()) == {0} and not (there[:, :-1] & ~there[:, 1:]).any()
    else:  # missing tokens are at the end
        assert set(absent.tolist()) == {-1} and not (~there[:, :-1] & there[:, 1:]).any()
    assert (codes_of_inputs(inputs_of_codes(encoder, codes)) == codes).all()


def test_one_wrong_answer_is_enough():
    tokens = np.arange(5000)[:, None]
    asked = ExportQueries(tokens, tokens >= 0, np.where(tokens[:, 0] == 7, -2, tokens[:, 0] % 3), "every row")
    assert recheck(lambda t, _: t[:, 0] % 3, asked, "toy") == "every row"
    assert recheck(lambda t, _: np.where(t[:, 0] == 7, 9, t[:, 0] % 3), asked, "toy") == "every row"  # 7 is not queried
    with pytest.raises(ExportError, match=r"the toy model answers class 2 instead of 1 for the tokens \[4999\]"):
        recheck(lambda t, _: np.where(t[:, 0] == 4999, 2, t[:, 0] % 3), asked, "toy")
