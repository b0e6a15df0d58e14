"""Kim, Kim and Mozafari 2023: 2n attention layers read a row's tokens from the largest down, then a label memory."""

from __future__ import annotations

from fractions import Fraction

from byheart.build._base import Construction, Option, register
from byheart.build.ks25.claims import memory_promise
from byheart.build.ks25.fields import measured_fields
from byheart.build.ks25.layers import input_map as input_layer
from byheart.build.ks25.memorizer import residual_scan
from byheart.build.ks25.memorizer.residual_memorizer import memorizer_blocks
from byheart.build.ks25.memorizer.residual_stream import KEY, LABEL, X, Y, blocks
from byheart.build.ks25.memorizer.residual_stream import STREAM as NAMES
from byheart.build.ks25.options import Form, Style
from byheart.build.ks25.parts import Lookup, class_labels
from byheart.build.ks25.transformer import Stage, finished
from byheart.build.shared.projection import Constants, Line, project
from byheart.build.shared.wires import Block, Effect, affine, wire
from byheart.build.table1.kim23_rounds import ROUND_UNITS, SEPARATION, round_layers, sharpness, start_block, whole
from byheart.build.table1.ranked_tokens import ranked_rows
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.exact import dyadic
from byheart.exact.values import Values
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine, Kind
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress
from byheart.theory.theorems import output_map
from byheart.theory.upper import DENSE, STREAM, Cloud, Promise, dense_blocks, input_map

THEOREM = Ref("K23", "Theorem 3.1")


@register(
    "kim23",
    summary="2n attention layers rank the tokens, then a label memory on nN contexts: O(n + sqrt(nN)) up to logarithms",
    ref=THEOREM,
    tasks=(Task.SEQ_TO_SEQ, Task.NEXT_TOKEN),
    options=(
        Option(
            "attention",
            str,
            Kind.HARDMAX.value,
            "hardmax: exact; softmax: sharp enough that labels come out all the same, certified by enclosures",
            (Kind.HARDMAX.value, Kind.SOFTMAX.value),
        ),
    ),
)
@implements(
    THEOREM,
    statement="2n self-attention layers of constant size give every context a number of its own; nN contexts are "
    "memorized with O(n + sqrt(nN)) parameters up to logarithms.",
    test="tests/build/table1/test_kim23.py",
)
def build_kim23(
    dataset: Dataset, *, seed: int = 0, progress: Progress = SILENT, attention: str = "hardmax"
) -> Construction:
    """E_in · n rounds (hardmax finds the largest token, uniform counts it, a block adds both) · label memory · E_out.

    Reconstructed: the paper states the order of growth and 2n attention layers; the rounds, their block of four units
    and the checked line through (own token, values and counts) are ours.
    """
    soft = Kind(attention) is Kind.SOFTMAX
    style = Style(Form.RESIDUAL, Constants.MEASURED, seed)
    separation = dataset.separation.delta_squared or Fraction(1)
    with progress.stage("numbering tokens and contexts", total=2) as stage:
        token = project(dataset.inputs.points, separation, style.constants, seed)
        token = whole(token) if soft else token
        stage.advance()
        context = _context_line(dataset, token, seed)
        context = whole(context) if soft else context
        stage.advance()
    labels = class_labels(dataset)
    fields = measured_fields(style, context.floors, labels, residual_scan.DENSE)
    memory = Lookup.of(context.floors, labels, lambda keys, found: fields)
    bits = token.top.bit_length()
    sharp = sharpness(dataset.n, context, bits) if soft else None
    stages: list[Stage] = [
        ("E_in", (input_layer(style, token),)),
        ("start", blocks([start_block(token.bias, context, dyadic(1, -1) if soft else 0)])),
        ("ranking the tokens", round_layers(dataset.n, context, bits, sharp)),
        ("label memory", blocks(_memory_steps(memory))),
        ("E_out", (_logits(dataset.C) if soft else affine(NAMES, {"y": wire(Y)}, relu=False, bias=False),)),
    ]
    network = finished(dataset, stages, Readout(Decode.ARGMAX, dataset.C) if soft else None)
    claim = _claim(dataset, token, context, memory, style, sharp)
    return Construction(network, claim, {"attention": attention}, (f"{len(labels)} contexts; {memory.fields}",))


def _logits(classes: int) -> Affine:
    """Logits that are largest at the class nearest to y - 1."""
    rows = [{NAMES.index(Y): 2 * c} for c in range(classes)]
    return Affine(Matrix.of(rows, len(NAMES)), tuple(-c * c - 2 * c for c in range(classes)))


def _context_line(dataset: Dataset, token: Line, seed: int) -> Line:
    """A line through (own token, ranked values and counts): contexts that differ are at least 2 apart on it."""
    contexts = dataset.contexts
    one = token.denominator
    ranked = ranked_rows(token.numerators, dataset.inputs.index[contexts.row])
    points = [
        [token.numerators[point], *(value if place % 2 == 0 else value * one for place, value in enumerate(row))]
        for point, row in zip(contexts.point.tolist(), ranked, strict=True)
    ]
    return project(Values.of(points, one), SEPARATION, Constants.MEASURED, seed)


def _memory_steps(memory: Lookup) -> list[Block]:
    """The context's number becomes x; the constant 1 goes; then the memorizer of KS25 with skip connections."""
    renamed = (Effect(wire(X), {X: -1}), Effect(wire(LABEL), {X: 1, LABEL: -1}))
    return memorizer_blocks(memory.pieces, effects=renamed, shift={KEY: -1})


def _claim(dataset: Dataset, token: Line, context: Line, memory: Lookup, style: Style, sharp: int | None) -> Claim:
    """The rounds as they are built, and Lemma C.1's sum for the label memory."""
    n, found = dataset.n, dataset.separation
    tokens = Cloud(dataset.inputs.points.count, dataset.d, found.r_squared, found.delta_squared or 1)
    per_round = 4 * STREAM + 2 * STREAM + sum(dense_blocks(1, hidden=units) for units in ROUND_UNITS)
    top = token.top
    ids = Cloud(len(dataset.contexts), 2 * n + 1, (2 * n + 1) * (top + n) ** 2, 1)
    stretched = 0 if sharp is None else dataset.inputs.points.denominator.bit_length() + ids.projection_bits
    exit_map = (
        output_map(DENSE) if sharp is None else Promise(1, 0, dataset.C * (STREAM + 1), 2 * dataset.C.bit_length())
    )
    rounds = Promise(
        STREAM,
        4 * n + 1,
        n * per_round + dense_blocks(1, hidden=1),
        max(ids.projection_bits, 2 * ids.key_bits) + stretched + 1,
    )
    promise = memory_promise(memory, style, DENSE).then(
        rounds, input_map(dataset.d, style.form, DENSE, tokens.projection_bits + stretched), exit_map
    )
    return Claim(
        THEOREM,
        {
            "width": promise.width,
            "depth": promise.depth,
            "parameters": promise.parameters,
            "max_bits": promise.max_bits,
            "attention_layers": 2 * n,
        },
        {
            "attention_layers": "2n",
            "parameters": "n rounds of constant size, the label memory of Lemma C.1 on the contexts, and both maps",
            "depth": "4n + 1, and the label memory of Lemma C.1",
        },
        assumptions=("tokens are separated",),
    )
