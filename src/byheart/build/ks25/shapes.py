"""The same network in other shapes: eq. (4) as KS25 stores it, and Remark 3.1, which has no input map.

Eq. (4) has attention in every block and one shape for all blocks: stream m, H heads of size s, q hidden units. Blocks
of the proofs that only feed forward get attention whose value and output matrices are zero, and hidden units that
read and write nothing (`uniform_stages`). Such a network stores W = md + L(4msH + 2mq + q + m) + m numbers.

Remark 3.1 removes E_in: the stream is then the token itself, d numbers, and so is every column of every block, which
is the linear dependence on d that the remark speaks of (`without_input_map`). A first block projects the token to the
line and clears the ten numbers that the memories work on; the other d - 10 are carried along and never read again.

    >>> block = Residual(Matrix.of([{0: 1}], 2), (0,), Matrix.of([{}, {0: 1}], 1), (0, 0))
    >>> padded(block, hidden=3).parameters, block.parameters, widened(block, 5).parameters
    (17, 7, 16)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byheart.build.ks25.residual_memorizer import STREAM, X
from byheart.build.shared.projection import KeyLine
from byheart.build.shared.wires import Effect, Form, WireBlock, residual, wire
from byheart.errors import OptionError
from byheart.exact import Number
from byheart.exact.number import Values
from byheart.ir.layers import Affine, Attention, Head, Kind, Layer, Matrix, Pattern, Residual
from byheart.paper import Ref, implements

Stage = tuple[str, tuple[Layer, ...]]
TEST = "tests/build/ks25/test_shapes.py"


@implements(
    Ref("KS25", "eq. (4)"),
    statement="E_out ∘ F_L ∘ … ∘ F_1 ∘ E_in with attention in every block and one shape for all blocks: `ks25` with "
    "shape=uniform stores exactly md + L(4msH + 2mq + q + m) + m numbers",
    test=TEST,
)
@implements(
    Ref("KS25", "eq. (2)"),
    statement="the self-attention layer with keys, queries, values and output in every block; idle ones are zero",
    test=TEST,
)
@implements(
    Ref("KS25", "eq. (3)"),
    statement="the feed-forward layer with skip connection, q hidden units in every block",
    test=TEST,
)
def uniform_stages(stages: Sequence[Stage], kind: Kind) -> list[Stage]:
    """Every block with attention and as many hidden units as the largest has."""
    if kind is Kind.UNIFORM:
        raise OptionError("eq. (4) stores keys and queries in every block: use attention=softmax or hardmax with it")
    every = [layer for _, part in stages for layer in part]
    hidden = max(layer.hidden for layer in every if isinstance(layer, Residual))
    found: list[Stage] = []
    attended = False
    for name, part in stages:
        layers: list[Layer] = []
        for layer in part:
            if isinstance(layer, Residual):
                layers += [padded(layer, hidden)] if attended else [idle(layer.width_in, kind), padded(layer, hidden)]
            else:
                layers.append(layer)
            attended = isinstance(layer, Attention)
        found.append((name, tuple(layers)))
    return found


def idle(stream: int, kind: Kind) -> Attention:
    """Attention that adds zero: one head of size one without a weight."""
    flat, tall = Matrix.zero(1, stream), Matrix.zero(stream, 1)
    return Attention(kind, Pattern.FULL, (Head(flat, tall, flat, flat),))


def padded(block: Residual, hidden: int) -> Residual:
    """The block with this many hidden units; further ones read and write nothing."""
    spare = hidden - block.hidden
    return replace(
        block,
        weight1=Matrix((*block.weight1.rows, *((),) * spare), block.weight1.columns),
        bias1=(*block.bias1, *(0,) * spare),
        weight2=Matrix(block.weight2.rows, hidden),
    )


@implements(
    Ref("KS25", "Remark 3.1"),
    statement="without E_in, tokens are the stream and every block has d columns, so parameters grow linearly with d: "
    "`ks25` with input_map=false",
    test=TEST,
    partly="for d >= 10, the numbers that the memories work on; E_out is kept as a row of the unit matrix that selects "
    "the label",
)
def without_input_map(stages: Sequence[Stage], line: KeyLine, points: Values) -> list[Stage]:
    """The stages after E_in on a stream of d numbers, after a block that makes their ten numbers of the token."""
    d = points.width
    if d < len(STREAM):
        raise OptionError(
            f"without E_in the stream is the token, {d} numbers here, and the memories work on {len(STREAM)}: "
            "give vectors of at least that many numbers, or keep the input map"
        )
    behind = [(name, tuple(widened(layer, d) for layer in part)) for name, part in stages[1:]]
    return [("entrance", (entrance(line, points),)), *behind]


def entrance(line: KeyLine, points: Values) -> Residual:
    """(z_1, …, z_d) -> (w·z, 0, …, 0, z_11, …, z_d) for every token z of the data.

    z_j - relu(z_j + c_j) + c_j is 0 where z_j >= -c_j, and relu(w·z + b) - b is w·z where w·z >= -b, as it is for all
    tokens by the choice of the line's bias b.
    """
    names = (*STREAM, *(f"z{j}" for j in range(len(STREAM), points.width)))
    lowest = points.numerators.min(axis=0)[: len(STREAM)]
    lifts = [max(0, -(int(low) // points.denominator)) for low in lowest]
    projected = Form(dict(zip(names, line.weight, strict=True)), line.bias)
    effects = [Effect(projected, {X: 1})]
    effects += [Effect(wire(name) + lift, {name: -1}) for name, lift in zip(STREAM, lifts, strict=True)]
    shift: dict[str, Number] = dict(zip(STREAM, lifts, strict=True))
    shift[X] = shift[X] - line.bias
    return residual(names, WireBlock(tuple(effects), shift))


def widened(layer: Layer, stream: int) -> Layer:
    """The layer on a stream of this many numbers; further ones are neither read nor changed."""
    if isinstance(layer, Residual):
        return replace(
            layer,
            weight1=_more_columns(layer.weight1, stream),
            weight2=_more_rows(layer.weight2, stream),
            bias2=(*layer.bias2, *(0,) * (stream - len(layer.bias2))),
        )
    if isinstance(layer, Attention):
        heads = (
            Head(
                _more_columns(head.value, stream),
                _more_rows(head.output, stream),
                None if head.key is None else _more_columns(head.key, stream),
                None if head.query is None else _more_columns(head.query, stream),
            )
            for head in layer.heads
        )
        return replace(layer, heads=tuple(heads))
    if isinstance(layer, Affine):  # E_out
        return replace(layer, weight=_more_columns(layer.weight, stream))
    raise OptionError(f"{type(layer).__name__} has no wider form")


def _more_columns(matrix: Matrix, columns: int) -> Matrix:
    return Matrix(matrix.rows, columns)


def _more_rows(matrix: Matrix, rows: int) -> Matrix:
    return Matrix((*matrix.rows, *((),) * (rows - len(matrix.rows))), matrix.columns)
