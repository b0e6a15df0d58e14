"""Numbers for tokens and contexts that one rank-one softmax head can make: KS24's Boltzmann operator, enclosed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from byheart.build.shared.projection import Constants, project
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.exact import Number, as_fraction, dyadic
from byheart.exact.values import Values
from byheart.ir.enclose import enclosed_outputs
from byheart.ir.layers import Affine, Layer
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read, Readout

NONZERO = "no token is the zero vector"
SEPARATED = "the head's numbers tell all contexts apart"
FINER = 24  # bits below the smallest gap to which the contexts' numbers are known
MOST_BITS = 4096
SEEDS = 8


@dataclass(frozen=True)
class TokenLine:
    """t = weight·x is a token's place; logits are beta·t·t', and the head adds `step` of its mean to `channel`."""

    weight: tuple[Number, ...]
    beta: Number
    step: Number
    channel: int


@dataclass(frozen=True)
class Numbered:
    """Contexts in ascending order: places in units of 2^-(scale_bits + fraction), labels, and how close they are."""

    points: tuple[int, ...]
    labels: tuple[int, ...]
    scale_bits: int
    fraction: int
    gap_bits: int


def token_line(dataset: Dataset, points: Values | None, seed: int) -> TokenLine:
    """A direction on which tokens are at least 2 apart and none is at 0, with logits below 2 in size."""
    vectors = dataset.inputs.points if points is None else points
    zero = np.flatnonzero(~(vectors.numerators != 0).any(axis=1))
    if zero.size:
        rows = np.flatnonzero((dataset.inputs.index == zero[0]).any(axis=1))
        raise AssumptionError(
            NONZERO, "a token that is the zero vector attends to all tokens alike; shift the vectors", (int(rows[0]),)
        )
    separation = Fraction(1) if points is not None else dataset.separation.delta_squared or Fraction(1)
    for attempt in range(SEEDS):
        line = project(vectors, separation, Constants.MEASURED, seed + attempt)
        weight = line.weight if any(line.weight) else (1,) * vectors.width  # one token only
        places = [
            sum((as_fraction(w) * int(x) for w, x in zip(weight, row, strict=True)), Fraction(0))
            for row in vectors.numerators
        ]
        if all(places):
            break
    else:
        raise AssumptionError(SEPARATED, f"{SEEDS} directions all put a token at 0; try another seed")
    largest = max(abs(place) for place in places) / vectors.denominator
    bits = max(0, math.ceil(math.log2(largest * largest)))
    channel = max(range(len(weight)), key=lambda j: abs(as_fraction(weight[j])))
    reach = abs(as_fraction(weight[channel])) * largest
    return TokenLine(weight, dyadic(2, -bits), dyadic(1, -max(0, math.ceil(math.log2(2 * reach)))), channel)


def number_contexts(dataset: Dataset, layers: tuple[Layer, ...], line: TokenLine) -> Numbered:
    """The contexts' places behind the head, enclosed so tightly that their order and distances are certain."""
    read = Read.EACH if dataset.encoder.task is Task.SEQ_TO_SEQ else Read.LAST
    reading = Affine(Matrix.of([dict(enumerate(line.weight))], len(line.weight)))
    network = Network((*layers, reading), read, Readout(Decode.VALUE, 1))
    contexts = dataset.contexts
    columns = contexts.position if read is Read.EACH else np.zeros_like(contexts.row)
    labels = contexts.label.tolist()
    bits = 128
    while bits <= MOST_BITS:
        enclosed = enclosed_outputs(network, dataset.inputs, bits)
        state = enclosed.state
        places = state.points.numerators[state.index[contexts.row, columns], 0]
        order = sorted(range(len(labels)), key=places.__getitem__)
        gaps = [(int(places[b] - places[a]), a, b) for a, b in pairwise(order) if labels[a] != labels[b]]
        smallest, first, second = min(gaps, default=(state.points.denominator, 0, 0))
        gap = Fraction(smallest, state.points.denominator)
        if gap > enclosed.radii[0] * 2 ** (FINER + 4):
            return _numbered(
                [Fraction(int(places[i]), state.points.denominator) for i in order], [labels[i] for i in order], gap
            )
        bits *= 2
    rows = (int(contexts.row[first]), int(contexts.row[second]))
    raise AssumptionError(SEPARATED, f"two contexts are less than 2^-{MOST_BITS} apart behind the head", rows)


def _numbered(places: list[Fraction], labels: list[int], gap: Fraction) -> Numbered:
    """On a grid in which labels change at least 1 apart; of contexts that fall on one point the first is kept."""
    scale = max(0, math.ceil(-_log2(gap)))
    unit = Fraction(2) ** (scale + FINER)
    points: list[int] = []
    kept: list[int] = []
    for place, label in zip(places, labels, strict=True):
        value = round(place * unit)
        if not points or value > points[-1]:
            points.append(value)
            kept.append(label)
    return Numbered(tuple(points), tuple(kept), scale, FINER, scale)


def _log2(value: Fraction) -> float:
    return math.log2(value.numerator) - math.log2(value.denominator)
