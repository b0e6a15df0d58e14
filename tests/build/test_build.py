"""Every registered construction, on every task it names: registering is testing."""

from __future__ import annotations

import numpy as np
import pytest

import byheart
from byheart.build import recipes
from byheart.build._base import Option
from byheart.data.task import Task
from byheart.errors import AssumptionError, OptionError
from byheart.memory import Memory
from tests.cases import Case, cases

GRID = [
    pytest.param(name, case, id=f"{name}-{case}")
    for name, recipe in sorted(recipes().items())
    for task in recipe.tasks
    for case in cases(Task(task))
]


def build(name: str, case: Case, seed: int = 0) -> Memory:
    try:
        return byheart.memorize(
            case.sequences,
            case.labels,
            task=case.task,
            construction=name,
            positions=case.positions,
            seed=seed,
            progress=False,
        )
    except AssumptionError as error:
        if error.assumption not in recipes()[name].assumptions:
            raise
        where = f" at rows {', '.join(map(str, error.rows))}" if error.rows else ""
        pytest.skip(f"{name} assumes that {error.assumption}, which fails{where}")


@pytest.mark.parametrize(("name", "case"), GRID)
def test_memorizes_and_survives_its_file(name: str, case: Case, tmp_path) -> None:
    memory = build(name, case)
    assert memory.certificate.verdict == "proved", memory.certificate.reason
    assert memory.certificate.guarantee == ("kept" if memory.claim.bounds or memory.claim.properties else "none")
    assert memory.predict(case.sequences) == case.labels
    memory.save(tmp_path / "m.byheart")
    loaded = byheart.load(tmp_path / "m.byheart")
    assert loaded.network == memory.network
    assert loaded.certificate == memory.certificate and loaded.claim == memory.claim
    assert loaded.predict(case.sequences) == case.labels


@pytest.mark.parametrize("name", sorted(recipes()))
def test_the_same_seed_gives_the_same_network(name: str) -> None:
    case = list(cases(Task(recipes()[name].tasks[0])))[3]
    assert build(name, case, seed=5).network == build(name, case, seed=5).network


@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_construction_says_what_it_is(name: str) -> None:
    listing = byheart.constructions()[name]
    assert listing.summary and listing.paper and listing.tasks
    assert all(words for words in listing.options.values())


@pytest.mark.parametrize("value", [80.9, float("inf"), float("nan"), True, "6.5", [1]])
def test_whole_numbers_are_whole(value):
    """80.9 once became 80, and infinity a bare OverflowError."""
    depth = Option("depth", int, None, "how deep", optional=True)
    assert [depth.parse(good) for good in (60, "60", 60.0, np.int64(60), None)] == [60, 60, 60, 60, None]
    with pytest.raises(OptionError, match="is not of type int"):
        depth.parse(value)
