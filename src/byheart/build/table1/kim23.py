"""Kim, Kim and Mozafari 2023: 2n attention layers read a row's tokens from the largest down, then a label memory.

One round of Kim et al. 2023: find the largest token that is left, count it, add both to the number, strike it out.

The stream is that of the residual memorizer, whose coordinates are free until the label memory starts: `active` is the
token while it is in the race, `top` the largest active one, `hit` 1 where a token is that one, `count` how many are,
`one` the constant that queries need, `number` the context's number so far.

The code of a row, with tokens from the largest down: the largest, how often, the next, …

Kim, Kim and Mozafari 2023 let attention do that reading, one value per round; this is the same in plain Python, for the
builder that must compute beforehand which numbers the network will see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from byheart.build._base import Construction, Option, register
from byheart.build.ks25.construction import finished
from byheart.build.ks25.layers import input_map as input_layer
from byheart.build.ks25.parts import BuildStyle, KeyLookup, LayerForm, PartLimit, class_labels, measured_fields
from byheart.build.ks25.residual_memorizer import (
    KEY,
    LABEL,
    U1,
    U2,
    W1,
    W2,
    X,
    Y,
    blocks,
    cleared,
    memorizer_blocks,
)
from byheart.build.ks25.residual_memorizer import STREAM as NAMES
from byheart.build.ks25.shapes import Stage
from byheart.build.shared.projection import Constants, KeyLine, project
from byheart.build.shared.wires import Effect, WireBlock, affine, wire
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.exact import Number, as_fraction, dyadic, from_fraction
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Attention, Head, Kind, Layer, Matrix, Pattern
from byheart.ir.network import Decode, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.guarantees.table1 import ranked_part
from byheart.theory.upper import DENSE

ACTIVE, TOP, HIT, COUNT, ONE, NUMBER = U1, U2, W1, W2, KEY, LABEL


SEPARATION = Fraction(1)  # values are 0 or at least 2 apart, counts at least 1: contexts differ by this (squared)


def whole(line: KeyLine) -> KeyLine:
    """The same line, stretched so that everything on it is a whole number."""
    stretched = tuple(from_fraction(as_fraction(w) * line.denominator) for w in line.weight)
    return KeyLine(stretched, line.bias * line.denominator, line.numerators, 1)


def sharpness(n: int, context: KeyLine, key_bits: int, folds: int) -> int:
    """A factor for softmax's scores with which it misses the largest token by too little to matter.

    Tokens are at least 2 apart, so the others have less than n·exp(-2·beta) of the weight. The rest is
    multiplied by at most 2^key_bits when tokens are struck out, and by the context's weights when they are added. What
    striking leaves on the stream is then doubled by every fold of the label memory, whose trajectories lie there.
    """
    reach = sum(abs(as_fraction(w)) for w in context.weight) + 1
    return math.ceil((math.log(reach) + math.log(n) + (2 * key_bits + folds + 12) * math.log(2)) / 2)


def start_block(bias: int, context: KeyLine, centre: Number) -> WireBlock:
    """x in place, active = x, one = 1, number = its share of x; `centre` puts it in the middle of its key's cell."""
    x = wire(X) + bias
    shift = {X: bias, ONE: 1, NUMBER: context.bias + centre}
    return WireBlock((Effect(x, {ACTIVE: 1, NUMBER: context.weight[0]}),), shift)


def round_layers(n: int, context: KeyLine, key_bits: int, softmax: int | None = None) -> tuple[Layer, ...]:
    """n rounds: 2n attention layers and 2n blocks; hardmax finds the largest token, or softmax with that factor."""
    kind = Kind.HARDMAX if softmax is None else Kind.SOFTMAX
    find = _head(kind, value=(ACTIVE, 1), target=TOP, key=(ACTIVE, 1), query=(ONE, softmax or 1))
    count = _head(Kind.UNIFORM, value=(HIT, n), target=COUNT)
    active, top, hit = wire(ACTIVE), wire(TOP), wire(HIT)
    # 1 where the token is the largest; nowhere when none is left, which is when top = 0
    compare = WireBlock((Effect(active - top + 1, {HIT: 1}), Effect(1 - top, {HIT: -1})))
    limit = 1 << key_bits
    layers: list[Layer] = []
    for place in range(n):
        of_value, of_count = context.weight[1 + 2 * place], context.weight[2 + 2 * place]
        settle = WireBlock(
            (
                Effect(top, {NUMBER: of_value, TOP: -1}),
                Effect(wire(COUNT), {NUMBER: of_count, COUNT: -1}),
                Effect(active + limit * hit - limit, {ACTIVE: -1}),  # strikes out the tokens that were counted
                *cleared(HIT),
            )
        )
        layers += [find, *blocks([compare]), count, *blocks([settle])]
    return tuple(layers)


def _head(
    kind: Kind,
    *,
    value: tuple[str, int],
    target: str,
    key: tuple[str, int] | None = None,
    query: tuple[str, int] | None = None,
) -> Attention:
    """One head of size 1 that adds a multiple of one coordinate to another."""

    def row(name: str, weight: int) -> Matrix:
        return Matrix.of([{NAMES.index(name): weight}], len(NAMES))

    output = Matrix.of([{0: 1} if name == target else {} for name in NAMES], 1)
    keys = None if key is None else row(*key)
    queries = None if query is None else row(*query)
    return Attention(kind, Pattern.FULL, (Head(row(*value), output, keys, queries),))


Index = npt.NDArray[np.int64]


def ranked_row(keys: Sequence[int], tokens: int) -> list[int]:
    """[value 1, count 1, value 2, count 2, …], values descending, filled with zeros: 2·tokens numbers.

    >>> ranked_row([5, 9, 5], 3)
    [9, 1, 5, 2, 0, 0]
    """
    found: list[int] = []
    for key in sorted(set(keys), reverse=True):
        found += [key, sum(other == key for other in keys)]
    return found + [0] * (2 * tokens - len(found))


def ranked_rows(keys: Sequence[int], index: Index) -> list[list[int]]:
    """`ranked_row` for each row of point numbers; keys[p] is the key of point p."""
    return [ranked_row([keys[p] for p in row if p >= 0], index.shape[1]) for row in index.tolist()]


THEOREM = Ref("K23", "Theorem 3.1")


@register(
    "kim23",
    summary="2n attention layers rank the tokens, then a label memory on nN contexts: O(n + sqrt(nN)) up to logarithms",
    order=70,
    formula="Kim 2023",
    description="Attention ranks the tokens: n rounds find the largest token that is left, count it and strike it out, "
    "so that a context becomes a list of numbers; then the feed-forward memory of vardi22. 2n attention layers,"
    " the square root of nN after that. Reconstructed from the theorem's order of growth.",
    ref=THEOREM,
    tasks=(Task.SEQ_TO_SEQ, Task.NEXT_TOKEN),
    options=(
        Option(
            "attention",
            str,
            Kind.HARDMAX.value,
            "hardmax: exact; softmax: sharp enough that labels are unchanged, certified by enclosures",
            (Kind.HARDMAX.value, Kind.SOFTMAX.value),
        ),
    ),
)
@implements(
    THEOREM,
    statement="2n self-attention layers of constant size give every context a distinct number; nN contexts are "
    "memorized with O(n + sqrt(nN)) parameters up to logarithms.",
    test="tests/build/table1/test_kim23.py",
    partly="our reconstruction of the 2n layers; their number and the orders are the paper's",
)
def build_kim23(
    dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT, attention: str = "hardmax"
) -> Construction:
    """E_in · n rounds (hardmax finds the largest token, uniform counts it, a block adds both) · label memory · E_out.

    Reconstructed: the paper states the order of growth and 2n attention layers; the rounds, their block of four units
    and the checked line through (own token, values and counts) are ours.
    """
    soft = Kind(attention) is Kind.SOFTMAX
    style = BuildStyle(LayerForm.RESIDUAL, Constants.MEASURED, seed)
    separation = dataset.separation.delta_squared or Fraction(1)
    with progress.stage("numbering tokens and contexts", total=2) as stage:
        token = project(dataset.inputs.points, separation, style.constants, seed)
        token = whole(token) if soft else token
        stage.advance()
        context = _context_line(dataset, token, seed)
        context = whole(context) if soft else context
        stage.advance()
    labels = class_labels(dataset)
    limit = PartLimit(ranked_part(dataset, soft), DENSE)
    fields = measured_fields(style, context.floors, labels, DENSE, limit)
    memory = KeyLookup.of(context.floors, labels, lambda keys, found: fields)
    bits = token.top.bit_length()
    folds = fields.entries * max(fields.key_bits, fields.label_bits)
    sharp = sharpness(dataset.n, context, bits, folds) if soft else None
    stages: list[Stage] = [
        ("E_in", (input_layer(style, token),)),
        ("start", blocks([start_block(token.bias, context, dyadic(1, -1) if soft else 0)])),
        ("ranking the tokens", round_layers(dataset.n, context, bits, sharp)),
        ("label memory", blocks(_memory_steps(memory))),
        ("E_out", (_logits(dataset.C) if soft else affine(NAMES, {"y": wire(Y)}, relu=False, bias=False),)),
    ]
    network = finished(dataset, stages, Readout(Decode.ARGMAX, dataset.C) if soft else None)
    return Construction(network, {"attention": attention}, (f"{len(labels)} contexts; {memory.fields}",))


def _logits(classes: int) -> Affine:
    """Logits that are largest at the class nearest to y - 1."""
    rows = [{NAMES.index(Y): 2 * c} for c in range(classes)]
    return Affine(Matrix.of(rows, len(NAMES)), tuple(-c * c - 2 * c for c in range(classes)))


def _context_line(dataset: Dataset, token: KeyLine, seed: int) -> KeyLine:
    """A line through (own token, ranked values and counts): contexts that differ are at least 2 apart on it."""
    contexts = dataset.contexts
    one = token.denominator
    ranked = ranked_rows(token.numerators, dataset.inputs.index[contexts.row])
    points = [
        [token.numerators[point], *(value if place % 2 == 0 else value * one for place, value in enumerate(row))]
        for point, row in zip(contexts.point.tolist(), ranked, strict=True)
    ]
    return project(Values.of(points, one), SEPARATION, Constants.MEASURED, seed)


def _memory_steps(memory: KeyLookup) -> list[WireBlock]:
    """The context's number becomes x; the constant 1 goes; then the memorizer of KS25 with skip connections."""
    renamed = (Effect(wire(X), {X: -1}), Effect(wire(LABEL), {X: 1, LABEL: -1}))
    return memorizer_blocks(memory.pieces, effects=renamed, shift={KEY: -1})
