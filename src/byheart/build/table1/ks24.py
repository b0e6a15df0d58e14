"""Kajitsuka and Sato 2024: one layer, one head of rank one with softmax, and a feed-forward layer.

Numbers for tokens and contexts that one rank-one softmax head can make: KS24's Boltzmann operator, enclosed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from byheart.build._base import Construction, register
from byheart.build.shared.projection import Constants, project
from byheart.build.table1.flattened import embedding_note, generic_embedding
from byheart.build.table1.nilsson65 import Interpolant, interpolate
from byheart.data.dataset.dataset import Dataset
from byheart.data.separation import separation
from byheart.data.task import Task
from byheart.errors import AssumptionError
from byheart.exact import Number, as_fraction, dyadic, from_fraction
from byheart.exact.number import Values
from byheart.ir.enclose import enclosed_outputs
from byheart.ir.layers import Affine, Attention, Head, Kind, Layer, Matrix, Pattern
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.table1 import NONZERO, SEPARATED
from byheart.theory.table1 import boltzmann_separation

FINER = 24  # bits below the smallest gap to which the contexts' numbers are known
# Precision at which contexts count as inseparable.
MOST_BITS = 4096
# Random directions.
SEEDS = 8


@dataclass(frozen=True)
class HeadLine:
    """t = weight·x is a token's position; logits are beta·t·t', and the head adds `step` of its mean to `channel`."""

    weight: tuple[Number, ...]
    beta: Number
    step: Number
    channel: int


@implements(
    Ref("KS24", "Theorem 2"),
    statement="one softmax head of rank one is a contextual mapping whose contexts are at least δ apart, δ as quoted "
    "in `byheart.theory.table1.boltzmann_separation`; ours are measured, by enclosures",
    test="tests/build/table1/test_ks24.py",
    partly="the theorem's number is quoted, not proved; logits are small here, and the distance is measured",
)
def separation_note(vectors: Values, n: int, gap_bits: int) -> str:
    """The distance between contexts with different labels after the head, and the theorem's guarantee for such
    tokens."""
    found = separation(vectors)
    distance = f"2^-{gap_bits}" if gap_bits else "1"
    norms = (vectors.numerators * vectors.numerators).sum(axis=1)
    shortest = Fraction(int(norms.min()), vectors.denominator**2)
    if found.delta_squared is None or n == 1 or not shortest:
        return f"contexts with different labels are at least {distance} apart after the head"
    guaranteed = boltzmann_separation(
        n, vectors.width, vectors.count, math.sqrt(shortest), math.sqrt(found.r_squared), math.sqrt(found.delta_squared)
    )
    return (
        f"contexts with different labels are at least {distance} apart after the head; KS24's Theorem 2, whose "
        f"logits are larger, has 2^{guaranteed:.3g}"
    )


@dataclass(frozen=True)
class Numbered:
    """Contexts in ascending order: positions in units of 2^-(scale_bits + fraction), labels, and how close they are."""

    points: tuple[int, ...]
    labels: tuple[int, ...]
    scale_bits: int
    fraction: int
    gap_bits: int


def token_line(dataset: Dataset, points: Values | None, seed: int) -> HeadLine:
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
    bits = max(0, math.ceil(_log2(largest * largest)))
    channel = max(range(len(weight)), key=lambda j: abs(as_fraction(weight[j])))
    reach = abs(as_fraction(weight[channel])) * largest
    return HeadLine(weight, dyadic(2, -bits), dyadic(1, -max(0, math.ceil(_log2(2 * reach)))), channel)


def number_contexts(dataset: Dataset, layers: tuple[Layer, ...], line: HeadLine) -> Numbered:
    """Return the contexts' positions after the head, enclosed so tightly that their order and distances are certain."""
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
    raise AssumptionError(SEPARATED, f"two contexts are less than 2^-{MOST_BITS} apart after the head", rows)


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


THEOREM = Ref("KS24", "Theorem 1")


@register(
    "ks24",
    summary="one softmax head of rank one distinguishes all contexts, nN - 1 ReLU units interpolate the labels",
    order=60,
    formula="Kajitsuka and Sato 2024",
    description="One softmax head of rank one adds the row's Boltzmann mean to each token, which distinguishes all "
    "contexts; a hidden layer interpolates the labels. Very shallow and small for few contexts; a hidden unit "
    "per context. Softmax is irrational, so the proof is by enclosures.",
    ref=THEOREM,
    tasks=(Task.SEQ_TO_SEQ, Task.NEXT_TOKEN),
    assumptions=(NONZERO, SEPARATED),
)
@implements(
    THEOREM,
    statement="one layer with one softmax head of rank one and a feed-forward network of O(nN) units memorizes N "
    "sequences with one label per token: O(dnN + d²) parameters.",
    test="tests/build/table1/test_ks24.py",
    partly="small logits instead of the proof's large ones; that contexts differ is checked by enclosures",
)
def build_ks24(dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT) -> Construction:
    """Tokens on a line; the head adds a small multiple of the row's Boltzmann mean; ReLUs interpolate; argmax decodes.

    Reconstructed: the paper proves that the Boltzmann operator separates contexts for large logits, where the
    separation is tiny; here logits stay below 2, and that the contexts' numbers differ is checked by enclosures. The
    certificate is by enclosures, too: softmax is not rational.
    """
    table, points = None, None
    if dataset.encoder.symbols is not None:
        table, points = generic_embedding(dataset, 1, placed=True, seed=seed)
    line = token_line(dataset, points, seed)
    front: tuple[Layer, ...] = () if table is None else (table,)
    attention = boltzmann_head(line)
    with progress.stage("numbering contexts", total=1) as stage:
        numbered = number_contexts(dataset, (*front, attention), line)
        stage.advance()
    found = interpolate(numbered.points, numbered.labels, denominator=1 << numbered.fraction)
    layers = (*front, attention, *_feed_forward(line, numbered, found, dataset.C))
    read = Read.EACH if dataset.encoder.task is Task.SEQ_TO_SEQ else Read.LAST
    stages = [("attention", 1), ("feed-forward", 2), ("E_out", 1)]
    if table is not None:
        stages.insert(0, ("embedding", 1))
    network = Network(layers, read, Readout(Decode.ARGMAX, dataset.C), tuple(stages))
    notes = [f"{len(numbered.points)} contexts, {len(found.units)} hidden units"]
    notes.append(separation_note(dataset.inputs.points if points is None else points, dataset.n, numbered.gap_bits))
    if table is not None:
        notes.append(embedding_note(table))
    return Construction(network, {}, tuple(notes))


def boltzmann_head(line: HeadLine) -> Attention:
    """z += step · mean of t_l weighted by exp(beta·t_k·t_l), in the channel that the line reads best."""
    d = len(line.weight)
    row = dict(enumerate(line.weight))
    query = {j: line.beta * w for j, w in row.items()}
    output = Matrix.of([{0: line.step} if j == line.channel else {} for j in range(d)], 1)
    head = Head(Matrix.of([row], d), output, Matrix.of([row], d), Matrix.of([query], d))
    return Attention(Kind.SOFTMAX, Pattern.FULL, (head,))


def _feed_forward(line: HeadLine, numbered: Numbered, found: Interpolant, classes: int) -> tuple[Layer, ...]:
    """One hidden layer that interpolates, y, and logits that are largest at the class nearest to y."""
    scale = Fraction(2) ** numbered.scale_bits
    row: dict[int, Number] = {j: from_fraction(as_fraction(w) * scale) for j, w in enumerate(line.weight)}
    units = found.units
    count = max(1, len(units))
    hidden = Affine(Matrix.of([row] * count, len(line.weight)), tuple(-u.start for u in units) or (0,), relu=True)
    value = Affine(Matrix.of([{i: u.weight for i, u in enumerate(units)}], count), (found.first,))
    return hidden, value, nearest_class(classes)


def nearest_class(classes: int) -> Affine:
    """y -> logits 2c·y - c², of which the largest is that of the class nearest to y."""
    return Affine(Matrix.of([{0: 2 * c} for c in range(classes)], 1), tuple(-c * c for c in range(classes)))
