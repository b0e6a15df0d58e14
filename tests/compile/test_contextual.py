"""Definition 4.1: ids of different contexts differ, ids of equal ones do not, and r and δ are what they are."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import byheart
from byheart.compile import contextual
from byheart.errors import BuildError

ROWS = [
    ["cat", "act", "tack", "dog", "good", "a"],
    [[1, 2, 3, 3], [3, 3, 2, 1], [1, 1, 2, 3], [2]],
    [[(0.5, 1.0), (2.0, 0.25)], [(2.0, 0.25), (2.0, 0.25)]],
]


@pytest.mark.parametrize("constants", ["measured", "paper"])
@pytest.mark.parametrize("rows", ROWS, ids=["words", "numbers", "vectors"])
def test_all_pairs(rows: list, constants: str) -> None:
    """The definition's two conditions, over all pairs of tokens of all pairs of sequences."""
    found = byheart.contextual_mapping(rows, constants=constants)
    tokens = [
        (str(token), sorted(map(str, row)), value)
        for row, ids in zip(found.sequences, found.context_ids, strict=True)
        for token, value in zip(row, ids, strict=True)
    ]
    gaps = []
    for (token, row, value), (other, mixed, second) in combinations(tokens, 2):
        if token != other or row != mixed:
            gaps.append(abs(value - second))
        else:
            assert value == second
    assert found.delta == min(gaps) > 0
    assert found.r == max(abs(value) for _, _, value in tokens)


def test_order_counts_with_positions() -> None:
    assert len(set(byheart.contextual_mapping(["ab", "ba"], positions=True).sequence_ids)) == 2
    assert len(set(byheart.contextual_mapping(["ab", "ba"]).sequence_ids)) == 1


def test_one_averaging_layer_and_few_parameters() -> None:
    draw = random.Random(1)
    rows = [[draw.randrange(30) for _ in range(6)] for _ in range(200)]
    found = byheart.contextual_mapping(rows)
    assert sum(type(layer).__name__ == "Attention" for layer in found.network.layers) == 1
    assert found.size.parameters < found.contexts * 3
    assert "contexts" in str(found)


def test_a_collision_is_not_called_a_mapping() -> None:
    with pytest.raises(BuildError, match="same id"):
        contextual._least_distance({(1, 0), (1, 1)})


def test_drawn() -> None:
    pytest.importorskip("matplotlib")
    from byheart.plots.memory import contexts_figure

    axes = contexts_figure(byheart.contextual_mapping(["cat", "act", "dog"])).axes[0]
    assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == ["c", "a", "d"]
