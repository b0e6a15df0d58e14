"""Kajitsuka and Sato 2024: one layer, one head of rank one with softmax, and a feed-forward layer."""

from __future__ import annotations

from fractions import Fraction

from byheart.build._base import Construction, register
from byheart.build.shared.interpolation import Interpolant, interpolate
from byheart.build.table1.generic_embedding import embedding_note, generic_embedding
from byheart.build.table1.ks24_line import NONZERO, SEPARATED, Numbered, TokenLine, number_contexts, token_line
from byheart.data.dataset.dataset import Dataset
from byheart.data.task import Task
from byheart.exact import Number, as_fraction, from_fraction
from byheart.ir.claim import Claim
from byheart.ir.layers import Affine, Attention, Head, Kind, Layer, Pattern
from byheart.ir.matrix import Matrix
from byheart.ir.network import Decode, Network, Read, Readout
from byheart.paper import Ref, implements
from byheart.progress import SILENT, Progress

THEOREM = Ref("KS24", "Theorem 1")


@register(
    "ks24",
    summary="one softmax head of rank one tells all contexts apart, nN - 1 ReLU units interpolate the labels",
    ref=THEOREM,
    tasks=(Task.SEQ_TO_SEQ, Task.NEXT_TOKEN),
    assumptions=(NONZERO, SEPARATED),
)
@implements(
    THEOREM,
    statement="one layer with one softmax head of rank one and a feed-forward network of O(nN) units memorizes N "
    "sequences with one label per token: O(dnN + d²) parameters.",
    test="tests/build/table1/test_ks24.py",
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
    notes = [f"{len(numbered.points)} contexts, {numbered.gap_bits} bits apart; {len(found.units)} hidden units"]
    if table is not None:
        notes.append(embedding_note(table))
    claim = _claim(dataset, len(line.weight), 0 if table is None else table.parameters)
    return Construction(network, claim, {}, tuple(notes))


def boltzmann_head(line: TokenLine) -> Attention:
    """z += step · mean of t_l weighted by exp(beta·t_k·t_l), in the channel that the line reads best."""
    d = len(line.weight)
    row = dict(enumerate(line.weight))
    query = {j: line.beta * w for j, w in row.items()}
    output = Matrix.of([{0: line.step} if j == line.channel else {} for j in range(d)], 1)
    head = Head(Matrix.of([row], d), output, Matrix.of([row], d), Matrix.of([query], d))
    return Attention(Kind.SOFTMAX, Pattern.FULL, (head,))


def _feed_forward(line: TokenLine, numbered: Numbered, found: Interpolant, classes: int) -> tuple[Layer, ...]:
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


def _claim(dataset: Dataset, d: int, embedded: int) -> Claim:
    hidden = max(1, len(dataset.contexts) - 1)
    return Claim(
        THEOREM,
        {
            "width": max(hidden, d),
            "depth": 3,
            "attention_layers": 1,
            "parameters": 4 * d * d + (d + 2) * hidden + 1 + 2 * dataset.C + embedded,
        },
        {
            "width": "contexts - 1 hidden units, at most nN - 1",
            "depth": "one attention layer, one hidden layer, one output layer",
            "parameters": "4d² + (d + 2)(contexts - 1) + 1, logits 2C, and the embedding of symbols",
        },
        assumptions=(NONZERO, SEPARATED, "parameters of any length"),
    )
