"""Definition 4.1: ids of different contexts differ, ids of equal ones do not, and r and δ are what they are."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

import byheart
from byheart.data.wording import short
from byheart.errors import BuildError, DataError, OptionError
from byheart.ir.layers import Affine, Matrix
from byheart.ir.network import Network
from byheart.memory import contextual

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


def test_a_collision_is_not_called_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that fails: every token gets the same id."""
    other = byheart.contextual_mapping(["aa", "cb"]).network
    monkeypatch.setattr(contextual, "contextual_network", lambda dataset, **how: _merged(other))
    with pytest.raises(BuildError, match=r"row 0, position 0 and row 1, position 0 have .* same id; try another seed"):
        byheart.contextual_mapping(["aa", "cb"])


def _merged(network: Network) -> Network:
    """The network with a last layer that outputs 7 and 0, whatever comes in."""
    last = network.layers[-1]
    assert isinstance(last, Affine)
    constant = replace(last, weight=Matrix.zero(*last.weight.shape), bias=(7, 0))
    return replace(network, layers=(*network.layers[:-1], constant))


def test_it_has_a_certificate() -> None:
    found = byheart.contextual_mapping(["listen", "silent", "tiles"])
    assert found.certificate.verdict.value == "proved" and found.certificate.tokens == 17
    assert (found.certificate.r, found.certificate.delta) == (found.r, found.delta)
    assert str(found).endswith("proved") and found.certificate.multisets == 2


@pytest.mark.parametrize("constants", ["measured", "paper"])
def test_ids_beyond_floats_are_shown(constants: str) -> None:
    """Tokens as close as 2^-1070 have ids above 10^308: printing the mapping was an OverflowError."""
    found = byheart.contextual_mapping([[[k * 2.0**-1070], [1.0]] for k in range(1, 6)], constants=constants)
    assert found.r > 10**308 and re.search(r"r = \d\.\d+e\+3\d\d,", str(found))
    assert short(Fraction(1, 2**2000)) == "8.710e-603"
    pytest.importorskip("matplotlib")
    from byheart.plots.memory import contexts_figure

    assert "10^" in contexts_figure(found).axes[0].get_xlabel()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (({"a": ["x"], "b": ["y"]},), {}, DataError, "table .dict., which goes through its columns"),
        ((None,), {}, DataError, "sequences is None"),
        (([None, "ab"],), {}, DataError, "row 0 is None"),
        (([1, 2],), {}, DataError, "row 0 is 1 .int., not a sequence"),
        (("abc",), {}, DataError, "the single string 'abc'"),
        (([],), {}, DataError, "there are no sequences"),
        ((["ab"],), {"constants": "foo"}, OptionError, "constants='foo' is not one of measured, paper"),
        ((["ab"],), {"seed": -1}, OptionError, "seed=-1 is not a whole number"),
        ((["ab"],), {"seed": "x"}, OptionError, "seed='x' is not a whole number"),
    ],
)
def test_what_is_refused(arguments: tuple, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        byheart.contextual_mapping(*arguments, **options)


def test_a_data_frame_is_not_its_column_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"one": ["x", "y"], "two": ["z", "w"]})
    for wrong in (lambda: byheart.contextual_mapping(frame), lambda: byheart.memorize(frame, [0, 1], progress=False)):
        with pytest.raises(DataError, match=r"table \(DataFrame\).*frame.to_numpy"):
            wrong()
    assert byheart.contextual_mapping(frame.to_numpy().tolist()).sequences == (("x", "z"), ("y", "w"))


def test_drawn() -> None:
    pytest.importorskip("matplotlib")
    from byheart.plots.memory import contexts_figure

    axes = contexts_figure(byheart.contextual_mapping(["cat", "act", "dog"])).axes[0]
    assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == ["c", "a", "d"]


def test_sequences_come_back_in_plain_numbers() -> None:
    rows = [[0.1, 0.2], [0.2, 0.2]]
    assert byheart.contextual_mapping(rows).sequences == ((0.1, 0.2), (0.2, 0.2))
    vectors = [[(0.1, 2.0)], [(0.3, 10**400)]]
    found = byheart.contextual_mapping(vectors)
    assert found.sequences == (((0.1, 2),), ((0.3, 10**400),))
    pytest.importorskip("matplotlib")
    from byheart.plots.memory import contexts_figure

    for mapping in (byheart.contextual_mapping(rows), found):
        axes = contexts_figure(mapping).axes[0]
        shown = [label.get_text() for label in (*axes.get_yticklabels(), *axes.texts)]
        assert shown and not any("Dyadic" in text or text.startswith("(Dy") for text in shown)
    assert [text.get_text() for text in axes.texts] == ["1", "2"]
