"""Bounded depth: never deeper than requested, proved, and weights that grow like N/L."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

import byheart
from byheart.errors import OptionError
from byheart.theory.upper import lanes_within, plain_memory_depth, residual_memory_depth


def words(count: int, length: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice("abcdefghij") for _ in range(length))] = None
    return list(found)


@pytest.mark.parametrize("form", ["residual", "plain"])
@pytest.mark.parametrize(
    ("construction", "depths"), [("vardi22", (30, 90)), ("ks25", (80, 130)), ("ks25-sparse", (80, 130))]
)
def test_no_deeper_than_asked(construction: str, form: str, depths: tuple[int, int]) -> None:
    rows = words(60, 4, seed=2)
    labels = [k % 5 for k in range(60)]
    factor = 3 if form == "plain" else 1
    for depth in (factor * d for d in depths):
        memory = byheart.memorize(rows, labels, construction=construction, form=form, depth=depth)
        assert memory.certificate.verdict.value == "proved", memory.certificate.reason
        assert memory.size.depth <= depth and memory.claim.broken_by(memory.size) == []
        assert memory.claim.bounds["depth"] <= depth
        assert memory.predict(rows) == labels


def test_every_token_has_a_label_in_lanes() -> None:
    rows = words(20, 4, seed=5)
    labels: Any = [[(k * j) % 3 for j in range(4)] for k in range(20)]
    memory = byheart.memorize(rows, labels, task="seq-to-seq", construction="ks25", depth=60)
    assert memory.certificate.verdict.value == "proved" and memory.size.depth <= 60 and memory.size.width > 14


def test_enough_depth_changes_nothing() -> None:
    rows, labels = words(25, 4, seed=2), [k % 5 for k in range(25)]
    free = byheart.memorize(rows, labels, construction="ks25")
    bounded = byheart.memorize(rows, labels, construction="ks25", depth=free.size.depth)
    assert bounded.size == free.size


def test_weights_grow_like_one_over_the_depth() -> None:
    """V22's trade-off: halving the depth about doubles the weights that are not zero (and more when stored dense)."""
    rows, labels = words(300, 5, seed=1), [k % 2 for k in range(300)]
    found = [byheart.memorize(rows, labels, construction="vardi22", depth=L).size for L in (50, 100, 200)]
    for shallow, deep in pairwise(found):
        assert 1.4 < shallow.nonzero / deep.nonzero < 4
        assert shallow.parameters > deep.parameters


@pytest.mark.parametrize("form", ["residual", "plain"])
def test_lanes_are_as_few_as_the_depth_allows(form: str) -> None:
    least = plain_memory_depth if form == "plain" else residual_memory_depth
    for entries, rho, c, depth in ((1000, 20, 1, 300), (50, 8, 9, 60), (7, 3, 1, 40), (300, 30, 4, 150)):
        lanes = lanes_within(depth, entries, rho, c, form)
        assert lanes is not None
        assert least(-(-lanes.piece // lanes.entries), lanes.entries, rho, c) <= depth
        fewer = lanes.count - 1
        if fewer:  # no K would do with one lane less
            piece = -(-entries // fewer)
            assert all(least(-(-piece // K), K, rho, c) > depth for K in range(1, piece + 1))


@pytest.mark.parametrize("form", ["residual", "plain"])
@pytest.mark.parametrize("construction", ["ks25", "ks25-sparse", "vardi22"])
def test_the_least_depth_is_named_and_is_the_least(construction: str, form: str) -> None:
    rows, labels = words(25, 4, seed=2), [k % 5 for k in range(25)]

    def build(depth: int) -> Any:
        return byheart.memorize(rows, labels, construction=construction, form=form, depth=depth)

    with pytest.raises(OptionError, match="the least that can be guaranteed is depth=") as caught:
        build(3)
    least = int(str(caught.value).rpartition("depth=")[2])
    memory = build(least)
    assert memory.certificate.verdict.value == "proved" and memory.size.depth <= least
    with pytest.raises(OptionError, match=f"the least that can be guaranteed is depth={least}"):
        build(least - 1)


def test_what_a_bounded_depth_does_not_go_with_is_named() -> None:
    options: Any
    for options in ({"constants": "paper"}, {"shape": "uniform", "attention": "softmax"}, {"input_map": False}):
        wanted = {"constants": "constants=measured", "shape": "shape=fitted", "input_map": "an input map"}
        with pytest.raises(OptionError, match=f"depth=90 needs {wanted[next(iter(options))]}"):
            byheart.memorize(["abc", "bca"], [0, 1], construction="ks25", depth=90, **options)


def test_too_shallow() -> None:
    assert lanes_within(5, 10, 8, 1, "residual") is None
    for construction in ("ks25", "ks25-sparse", "vardi22"):
        with pytest.raises(OptionError, match="depth=6"):
            byheart.memorize(["abc", "bca", "cab"], [0, 1, 1], construction=construction, depth=6)
        with pytest.raises(OptionError, match="constants=measured"):
            byheart.memorize(["abc", "bca"], [0, 1], construction=construction, depth=20, constants="paper")
