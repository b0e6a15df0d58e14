"""eq. (4) in uniform shape and Remark 3.1: built, proved, and as many numbers as the formula gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import byheart
from byheart.build.ks25.shapes import idle
from byheart.data.dataset.dataset import load
from byheart.errors import OptionError
from byheart.ir.evaluate import State, attended
from byheart.ir.layers import Attention, Kind, Residual
from byheart.ir.network import Network
from byheart.ir.size import uniform_parameters


def words(count: int, length: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice("abcdefg") for _ in range(length))] = None
    return list(found)


def vectors(count: int, length: int, d: int, seed: int) -> list[list[list[float]]]:
    rng = np.random.default_rng(seed)
    return (rng.integers(-40, 40, (count, length, d)) / 4).tolist()


def exact(memory: Any) -> Network:
    assert isinstance(memory.network, Network)
    return memory.network


@pytest.mark.parametrize("attention", ["softmax", "hardmax"])
@pytest.mark.parametrize("task", ["next-token", "seq-to-seq"])
def test_eq_4_stores_what_its_formula_says(attention: str, task: str) -> None:
    rows = words(30, 5, seed=1)
    labels: Any = (
        [k % 3 for k in range(30)] if task == "next-token" else [[(k + j) % 3 for j in range(5)] for k in range(30)]
    )
    fitted = byheart.memorize(rows, labels, task=task, construction="ks25", attention=attention)
    memory = byheart.memorize(rows, labels, task=task, construction="ks25", attention=attention, shape="uniform")
    assert memory.certificate.verdict.value == "proved" and memory.claim.broken_by(memory.size) == []
    # what was a count is now a network: every entry is stored
    assert memory.size.parameters == uniform_parameters(memory.network) == uniform_parameters(fitted.network)
    assert memory.size.nonzero == fitted.size.nonzero and memory.size.blocks == fitted.size.blocks
    # KS25's depth is the number of blocks; both are guaranteed, and a note distinguishes them
    L = memory.size.blocks
    assert memory.size.depth == 2 * L and memory.claim.bounds["depth"] == 2 * memory.claim.bounds["blocks"]
    assert any(f"L = {L} blocks (KS25's depth), {2 * L} layers" in note for note in memory.notes)
    inner = exact(memory).layers[1:-1]
    assert [type(layer) for layer in inner] == [Attention, Residual] * memory.size.blocks
    assert len({(layer.width_in, layer.hidden) for layer in inner if isinstance(layer, Residual)}) == 1
    assert memory.predict(rows) == labels


def test_uniform_shape_with_the_papers_constants() -> None:
    rows = words(12, 4, seed=3)
    memory = byheart.memorize(
        rows, [k % 2 for k in range(12)], construction="ks25", constants="paper", attention="softmax", shape="uniform"
    )
    assert memory.certificate.verdict.value == "proved"
    assert memory.size.parameters == uniform_parameters(memory.network) <= memory.claim.bounds["parameters"]


@pytest.mark.parametrize("d", [10, 11, 25])
@pytest.mark.parametrize("shape", ["fitted", "uniform"])
def test_remark_3_1_without_the_input_map(d: int, shape: str) -> None:
    rows, labels = vectors(15, 3, d, seed=d), [k % 4 for k in range(15)]
    memory = byheart.memorize(
        rows, labels, construction="ks25", positions=False, input_map=False, attention="softmax", shape=shape
    )
    assert memory.certificate.verdict.value == "proved" and memory.claim.broken_by(memory.size) == []
    layers = exact(memory).layers
    assert all(layer.width_in == d for layer in layers) and isinstance(layers[1 if shape == "uniform" else 0], Residual)
    last = layers[-1].weight.dense()  # E_out selects one number
    assert sorted(last[0]) == [0] * (d - 1) + [1]


def test_parameters_grow_linearly_with_d() -> None:
    sizes = {}
    for d in (12, 24, 48):
        memory = byheart.memorize(
            vectors(15, 3, d, seed=0), [k % 4 for k in range(15)], construction="ks25", positions=False, input_map=False
        )
        sizes[d] = memory.size.parameters / memory.size.blocks
    assert sizes[24] / sizes[12] == pytest.approx(2, rel=0.1) and sizes[48] / sizes[24] == pytest.approx(2, rel=0.1)


def test_idle_attention_changes_nothing() -> None:
    """The evaluator passes it by; evaluated in earnest, it adds zero."""
    inputs = load(["abca", "bbca"], [0, 1]).inputs
    layer = idle(inputs.points.width, Kind.SOFTMAX)
    after = attended(layer, State(inputs.points, inputs.index, inputs.lengths))
    assert layer.idle and after.points.denominator == 1
    assert (after.points.numerators[after.index] == inputs.points.numerators[inputs.index]).all()


def test_what_cannot_be_had() -> None:
    with pytest.raises(OptionError, match="keys and queries"):
        byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", shape="uniform")
    with pytest.raises(OptionError, match="form=residual"):
        byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", form="plain", shape="uniform", attention="softmax")
    with pytest.raises(OptionError, match="at least that many numbers"):
        byheart.memorize(["ab", "ba"], [0, 1], construction="ks25", input_map=False)
