"""Evaluation of networks that are not rational (softmax of unequal scores), by rigorous enclosures.

Every number is a midpoint, which is exact and goes through the same engine as everything else, and a radius, one per
channel for all tokens. Softmax is enclosed by arb's balls; a layer after it moves midpoints exactly and multiplies
radii by its absolute weights (ReLU moves no two numbers further apart). A class is given only where no number inside
the radii could give another one; more bits make the radii smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from byheart.errors import NotRationalError
from byheart.exact import as_fraction, bit_length
from byheart.exact.budget import limbs, meter
from byheart.exact.rigor import precision
from byheart.ir import evaluate
from byheart.ir.attend import Index, scores_matter
from byheart.ir.evaluate import State, tokenwise
from byheart.ir.inputs import ABSENT, Inputs
from byheart.ir.layers import Affine, Attention, Flatten, GlobalToken, Kind, Layer, Pool, Residual, SequenceLayer
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read
from byheart.ir.softmax_balls import TooWideError, attended_balls
from byheart.progress import SILENT, Progress

UNDECIDED = -2
SPARE_BITS = 96
DOUBLINGS = 4

Radii = tuple[Fraction, ...]  # one per channel


@dataclass(frozen=True, eq=False)
class Enclosed:
    """A state whose points are midpoints; every true number is within `radii` of its own."""

    state: State
    radii: Radii

    @property
    def exact(self) -> bool:
        return not any(self.radii)


def enclosed_answers(network: Network, inputs: Inputs, progress: Progress = SILENT) -> tuple[Index, int]:
    """Class indices as `evaluate.answers` gives them, -2 where the enclosures cannot decide, and the bits they took.

    The bits start at the longest weight's and are doubled a few times while something is undecided.
    """
    bits = max((bit_length(w) for layer in network.layers for w in layer.weights()), default=0) + SPARE_BITS
    found = None
    limit, weights = meter(), sum(1 for layer in network.layers for _ in layer.weights())
    for doubling in range(DOUBLINGS + 1):
        used = bits << doubling
        if limit is not None:
            limit.spend(limbs(used) ** 2 * inputs.points.count * weights)
        with suppress(TooWideError):
            found = _answers(network, enclosed_outputs(network, inputs, used, progress))
            if not (found == UNDECIDED).any():
                break
    if found is None:
        raise NotRationalError(f"enclosures of {used} bits are still too wide to decide anything")
    return found, used


def decided_answers(network: Network, inputs: Inputs, progress: Progress = SILENT) -> Index:
    """Class indices of any network: exactly where that is possible, else by enclosures; -1 where there is no class."""
    try:
        return evaluate.answers(network, inputs, progress)
    except NotRationalError:
        found, _ = enclosed_answers(network, inputs, progress)
        return np.where(found == UNDECIDED, ABSENT, found)


def enclosed_outputs(network: Network, inputs: Inputs, bits: int, progress: Progress = SILENT) -> Enclosed:
    """Midpoints and radii of what comes out, with balls of this many bits."""
    index = inputs.index
    enclosed = Enclosed(State(inputs.points, index, (index >= 0).sum(axis=1)), (Fraction(0),) * inputs.points.width)
    layers, place = network.layers, 0
    with precision(bits):
        while place < len(layers):
            layer = layers[place]
            if isinstance(layer, SequenceLayer):
                last = not any(isinstance(after, SequenceLayer) for after in layers[place + 1 :])
                enclosed = _mixed(layer, enclosed, network.read if last else None, bits)
                place += 1
                continue
            stop = place
            while stop < len(layers) and not isinstance(layers[stop], SequenceLayer):
                stop += 1
            enclosed = _tokenwise(layers[place:stop], enclosed, progress)
            place = stop
    state = enclosed.state
    return Enclosed(State(state.points, evaluate.read_index(network.read, state), state.lengths), enclosed.radii)


def _answers(network: Network, enclosed: Enclosed) -> Index:
    state, readout = enclosed.state, network.readout
    if readout.decode is Decode.VALUE:
        classes = evaluate.decode(readout, state.points)
        if not enclosed.exact:  # one number that must be whole cannot be told from its neighbours
            classes = np.full_like(classes, UNDECIDED)
    else:
        classes = np.array([_largest(row, enclosed) for row in state.points.numerators], dtype=np.int64)
    found = np.append(classes, ABSENT)[state.index]
    return found if network.read is Read.EACH else found[:, 0]


def _largest(logits: Sequence[int], enclosed: Enclosed) -> int:
    """The place of the logit that is largest whatever the true numbers are, or undecided."""
    one = enclosed.state.points.denominator
    best = max(range(len(logits)), key=logits.__getitem__)
    for other, value in enumerate(logits):
        if other != best and logits[best] - value <= (enclosed.radii[best] + enclosed.radii[other]) * one:
            return ABSENT if enclosed.exact else UNDECIDED
    return best


def _tokenwise(layers: Sequence[Layer], enclosed: Enclosed, progress: Progress) -> Enclosed:
    state = enclosed.state
    points = tokenwise(layers, state.points, progress)
    moved = State(points, state.index, state.lengths, state.hub)
    if enclosed.exact:
        return Enclosed(moved, (Fraction(0),) * points.width)
    radii = enclosed.radii
    for layer in layers:
        if isinstance(layer, Affine):
            radii = _spread(layer.weight, radii)
        elif isinstance(layer, Residual):
            added = _spread(layer.weight2, _spread(layer.weight1, radii))
            radii = tuple(a + b for a, b in zip(radii, added, strict=True))
        else:
            raise NotRationalError(f"{type(layer).__name__} after softmax has no enclosures")
        radii = tuple(_coarser(r) for r in radii)
    return Enclosed(moved, radii)


def _spread(matrix: Matrix, radii: Radii) -> Radii:
    """|W| r."""
    return tuple(sum((abs(as_fraction(w)) * radii[j] for j, w in row), Fraction(0)) for row in matrix.rows)


def _coarser(radius: Fraction) -> Fraction:
    """A slightly larger radius with a short numerator, so that radii stay cheap."""
    extra = radius.numerator.bit_length() - radius.denominator.bit_length() - 40
    if radius == 0:
        return radius
    unit = Fraction(2) ** extra
    return (radius // unit + 1) * unit


def _mixed(layer: SequenceLayer, enclosed: Enclosed, read: Read | None, bits: int) -> Enclosed:
    state, radii = enclosed.state, enclosed.radii
    match layer:
        case GlobalToken():
            return Enclosed(evaluate.append_token(layer, state), radii)
        case Pool():
            return Enclosed(evaluate.pooled(state), tuple(int(state.lengths.max()) * r for r in radii))
        case Flatten():
            return Enclosed(evaluate.flattened(layer, state), radii * layer.tokens)
    wanted = None if read is None else evaluate.read_mask(read, state)
    unequal = any(scores_matter(head) for head in layer.heads)
    if layer.kind is Kind.SOFTMAX and unequal:
        mask = state.index >= 0 if wanted is None else wanted
        found, grown = attended_balls(layer, state.points, state.index, mask, radii, bits)
        index = np.full_like(state.index, ABSENT)
        index[mask] = found.of_token
        return Enclosed(State(found.points, index, state.lengths, state.hub), tuple(_coarser(r) for r in grown))
    if layer.kind is Kind.HARDMAX and unequal and not enclosed.exact:
        raise NotRationalError("hardmax after softmax has no enclosures: its largest scores may be equal")
    moved = evaluate.attended(layer, state, wanted)
    return Enclosed(moved, _mean_radii(layer, radii))


def _mean_radii(layer: Attention, radii: Radii) -> Radii:
    """A mean of vectors is no further off than the vectors."""
    total: list[Any] = list(radii)
    for head in layer.heads:
        for channel, extra in enumerate(_spread(head.output, _spread(head.value, radii))):
            total[channel] += extra
    return tuple(total)
