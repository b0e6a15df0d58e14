from __future__ import annotations

import random

import pytest

from byheart.errors import ByheartError, OptionError
from byheart.memory import memorize
from tests.build.ks25.grid import check, labels, memory, rows
from tests.build.ks25.test_ks25 import STYLES


@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize(
    ("N", "n", "d", "C"), [(1, 1, 1, 1), (2, 2, 4, 2), (3, 8, 1, 10), (50, 5, 0, 3), (80, 8, 4, 10)]
)
def test_ragged_multisets(N: int, n: int, d: int, C: int, form: str, constants: str) -> None:
    found = memory("ks25-sets", N, n, d, C, task="set", form=form, constants=constants)
    check(found)
    assert found.size.width <= 12 == found.claim.bounds["width"]
    assert found.size.attention_layers == 0


@pytest.mark.slow
@pytest.mark.parametrize(("form", "constants"), STYLES)
@pytest.mark.parametrize("N", [1, 2, 3, 50, 300])
def test_whole_grid(N: int, form: str, constants: str) -> None:
    for n, d, C in ((1, 1, 1), (2, 4, 2), (8, 1, 10), (16, 16, 10), (16, 0, 2)):
        check(memory("ks25-sets", N, n, d, C, task="set", form=form, constants=constants))


def test_order_never_matters() -> None:
    rng = random.Random(0)
    data = rows(0, 30, 5, 0, ragged=True)
    known = labels(data, 4, "set")
    found = memorize(data, known, task="set", construction="ks25-sets", progress=False)
    check(found)
    for _ in range(3):
        assert found.predict([rng.sample(row, len(row)) for row in data]) == known


def test_different_numbers_of_the_same_element() -> None:
    data = [["a"] * k for k in range(1, 9)]
    found = memorize(data, list(range(8)), task="set", construction="ks25-sets", progress=False)
    check(found)


def test_labels_per_element_are_refused() -> None:
    with pytest.raises(ByheartError):
        memorize(["ab", "c"], [[0, 1], [0]], task="set", construction="ks25-sets", progress=False)


def test_other_tasks_are_refused() -> None:
    with pytest.raises(OptionError, match="ks25-sets"):
        memorize(["ab", "c"], [0, 1], construction="ks25-sets", progress=False)
