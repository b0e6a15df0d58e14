from __future__ import annotations

import pytest

from byheart.build import recipe
from byheart.errors import AssumptionError
from byheart.ir.layers import Embedding
from byheart.memory import memorize
from tests.build.ks25.grid import check, memory
from tests.build.ks25.test_ks25 import STYLES


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(("N", "n", "C"), [(1, 1, 1), (3, 2, 2), (40, 8, 10)])
@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
def test_token_ids(N: int, n: int, C: int, task: str, form: str, constants: str) -> None:
    found = memory("ks25-embedding", N, n, 0, C, task=task, form=form, constants=constants)
    check(found)
    table = found.network.layers[0]
    assert isinstance(table, Embedding)
    assert found.size.embedding_parameters == table.vocabulary * table.width_out


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_positions_are_part_of_the_id(form: str) -> None:
    words = ["stop", "post", "pots", "spot", "opt"]
    found = memorize(words, [0, 1, 2, 3, 4], construction="ks25-embedding", form=form, progress=False)
    check(found)
    table = found.network.layers[0]
    assert isinstance(table, Embedding)
    assert table.vocabulary == (4 + 1) * 4 and table.strides == (1, 5)
    assert found.predict(["pots", "opt"]) == [2, 4]


def test_vocabulary_is_paid_for_once() -> None:
    """omega enters as omega rows of the table, and logarithmically elsewhere."""
    rows = [[i % 7, i % 11, i % 13] for i in range(60)]
    wide = [[token * 50 for token in row] for row in rows] + [list(range(k, k + 3)) for k in range(601, 1200, 3)]
    small, large = (
        memorize(
            data, list(range(len(data))), construction="ks25-embedding", positions=False, progress=False, form="plain"
        )
        for data in (rows, wide)
    )
    check(small)
    check(large)
    assert large.size.embedding_parameters > 10 * small.size.embedding_parameters


def test_vectors_have_no_ids() -> None:
    with pytest.raises(AssumptionError, match="use ks25") as caught:
        memory("ks25-embedding", 5, 2, 3, 2)
    assert caught.value.assumption in recipe("ks25-embedding").assumptions
