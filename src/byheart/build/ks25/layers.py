"""The layers of KS25's networks, in both forms: input map, token code, averaging, label memory, output map.

plain:    E_in -> x · token code -> (phi, x, id = 0) · attention -> id · label memory -> y · E_out
residual: the same numbers on the ten coordinates of the residual memorizer: phi is y, and the id arrives in key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byheart.build.ks25.memorizer import KeyTable, memorizer_plan
from byheart.build.ks25.parts import BuildStyle
from byheart.build.ks25.residual_memorizer import (
    KEY,
    TRAJECTORIES,
    X,
    Y,
    blocks,
    cleared,
    lane_stream,
    memorizer_blocks,
    memorizer_lanes,
)
from byheart.build.shared.projection import KeyLine
from byheart.build.shared.wires import ZERO, Effect, Form, affine, assemble, wire, wires
from byheart.exact import Number
from byheart.ir.layers import Affine, Attention, Head, Kind, Layer, Matrix, Pattern
from byheart.theory.upper import DENSE

PLAIN_STREAM = ("phi", "x", "id")
ROLES = {"phi": Y, "x": X, "id": KEY}  # where the residual stream keeps them


def stream(style: BuildStyle) -> tuple[str, ...]:
    """The names of the numbers that attention works on."""
    return PLAIN_STREAM if style.plain else lane_stream(style.lanes)


def place(style: BuildStyle, role: str) -> int:
    """The channel of phi, x or id in the stream."""
    return stream(style).index(role if style.plain else ROLES[role])


def input_map(style: BuildStyle, line: KeyLine) -> Affine:
    """E_in: the linear part of the projection to the line."""
    inputs = tuple(f"x{j}" for j in range(len(line.weight)))
    projected = Form(dict(zip(inputs, line.weight, strict=True)))
    units = {"x": projected} if style.plain else {name: projected if name == X else ZERO for name in stream(style)}
    return affine(inputs, units, relu=False, bias=False)


def token_layers(
    style: BuildStyle, line: KeyLine, pieces: Sequence[KeyTable], outputs: Sequence[str], hidden: int = DENSE
) -> tuple[Layer, ...]:
    """x -> (phi, x, id = 0), or whichever of them are wanted: the network of eq. (50)."""
    if not style.plain:
        if style.lanes > 1:
            return blocks(memorizer_lanes(pieces, shift={X: line.bias}), style.lanes)
        return blocks(memorizer_blocks(pieces, hidden, shift={X: line.bias}))
    first = {"x": wire("x") + line.bias}
    plan, state = memorizer_plan(pieces, wires(first), abreast=style.lanes > 1)
    found = {"phi": state["y"], "x": state["x"], "id": ZERO}
    return assemble(("x",), [first, *plan, {name: found[name] for name in outputs}])


def averaging(style: BuildStyle, kind: Kind, count: int) -> Attention:
    """id += mean of phi times the number of tokens: the sum, an integer, where eq. (52) has the mean."""
    return head_layer(style, kind, Pattern.FULL, {"phi": count})


def head_layer(style: BuildStyle, kind: Kind, pattern: Pattern, value: Mapping[str, Number]) -> Attention:
    """One head of size 1 that adds the mean of a form over (phi, x, id) to id; keys and queries are zero."""
    size = len(stream(style))
    row = Matrix.of([{place(style, role): weight for role, weight in value.items()}], size)
    output = Matrix.of([{0: 1} if j == place(style, "id") else {} for j in range(size)], 1)
    zero = None if kind is Kind.UNIFORM else Matrix.zero(1, size)
    return Attention(kind, pattern, (Head(row, output, zero, zero),))


def label_layers(
    style: BuildStyle,
    weights: Mapping[str, Number],
    bias: int,
    pieces: Sequence[KeyTable],
    inputs: Sequence[str],
    hidden: int = DENSE,
) -> tuple[Layer, ...]:
    """weights · (phi, x, id) + bias is looked up; the last layer is E_out."""
    if style.plain:
        first = {"x": Form({name: weight for name, weight in weights.items() if weight}, bias)}
        plan, state = memorizer_plan(pieces, wires(first), abreast=style.lanes > 1)
        plan = [first, *plan]
        return *assemble(inputs, plan), affine(tuple(plan[-1]), {"y": state["y"]}, relu=False, bias=False)
    effects = [Effect(wire(X), {X: weights.get("x", 0) + -1})]
    for role in ("phi", "id"):
        if role in inputs:
            name = ROLES[role]
            effects.append(Effect(wire(name), {X: weights.get(role, 0), name: -1}))
    if style.lanes > 1:
        steps = memorizer_lanes(pieces, tuple(effects), {X: bias}, used=style.lanes)
    else:
        steps = memorizer_blocks(pieces, hidden, (*effects, *cleared(*TRAJECTORIES)), {X: bias})
    return *blocks(steps, style.lanes), affine(stream(style), {"y": wire(Y)}, relu=False, bias=False)
